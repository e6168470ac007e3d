/** Files of an artifact, read in chunks through memory, Workers KV and R2; nothing unverified is ever used. */

import type { MemoryTier } from "./cache";
import type { Artifact, Chunk } from "./config";
import { BufferSink } from "./engines/buffer";
import type { Sink } from "./engines/engine";

export type Tier = "memory" | "kv" | "r2";
/** How many chunks came from each tier. */
export type TierCounts = Record<Tier, number>;

/** The artifact's bytes cannot be had now. `message` reaches the client. */
export class WeightsUnavailable extends Error {
  override readonly name = "WeightsUnavailable";
}

export interface Sources {
  readonly memory: MemoryTier;
  readonly kv: { readonly namespace: KVNamespace; readonly ttl: number; readonly cacheTtl: number } | null;
  readonly bucket: R2Bucket;
}

export interface LoadedFiles {
  /** The files that were not given a sink. */
  readonly files: ReadonlyMap<string, Uint8Array>;
  readonly tiers: TierCounts;
  /** Ends when KV has what it lacked; the files' bytes are read until then. Never rejects. */
  readonly written: Promise<void>;
}

/** Cloudflare lets six connections wait for headers: leave two to others. */
const CONNECTIONS = 4;
/** Bytes of the one buffer that each connection reads into. */
const READ_BYTES = 512 * 1024;

const keyOf = (sha256: string): string => `artifacts/${sha256}`;

/** One chunk, and the place in its file where it goes. */
interface Job {
  readonly file: string;
  readonly chunk: Chunk;
  readonly sink: Sink;
  readonly offset: number;
}

/** Copy a stream into the chunk's place; false when it does not have exactly that many bytes. */
async function fill(stream: ReadableStream, { sink, offset: start, chunk: { size } }: Job): Promise<boolean> {
  const reader = stream.getReader({ mode: "byob" });
  let buffer = new ArrayBuffer(Math.min(READ_BYTES, size + 1));
  let offset = 0;
  for (;;) {
    const { done, value } = await reader.readAtLeast(buffer.byteLength, new Uint8Array(buffer));
    if (value !== undefined) {
      if (offset + value.byteLength > size) {
        await reader.cancel().catch(() => undefined);
        return false;
      }
      sink.write(start + offset, value);
      offset += value.byteLength;
      buffer = value.buffer as ArrayBuffer;
    }
    if (done) return offset === size;
  }
}

async function matches({ sink, offset, chunk: { sha256, size } }: Job): Promise<boolean> {
  const bytes = sink.view(offset, size);
  if (bytes === null) return false;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return digest.every((byte, i) => byte === Number.parseInt(sha256.slice(2 * i, 2 * i + 2), 16));
}

function fromMemory(job: Job, { memory }: Sources): boolean {
  const found = memory.get(job.chunk.sha256);
  if (found === undefined) return false;
  job.sink.write(job.offset, found);
  return true;
}

/** KV is a cache: a miss, an error and bytes that do not verify all mean "ask R2". */
async function fromKv(job: Job, { kv }: Sources): Promise<boolean> {
  if (kv === null) return false;
  try {
    const stream = await kv.namespace.get(keyOf(job.chunk.sha256), { type: "stream", cacheTtl: kv.cacheTtl });
    return stream !== null && (await fill(stream, job)) && (await matches(job));
  } catch {
    return false;
  }
}

async function fromR2(job: Job, { bucket }: Sources): Promise<void> {
  const name = `chunk ${job.chunk.sha256.slice(0, 12)} of ${job.file}`;
  let stored: R2ObjectBody | null;
  let complete: boolean;
  try {
    stored = await bucket.get(keyOf(job.chunk.sha256));
    complete = stored !== null && (await fill(stored.body, job));
  } catch {
    throw new WeightsUnavailable(`${name} could not be read from R2`);
  }
  if (stored === null) throw new WeightsUnavailable(`${name} is not in R2`);
  if (!complete || !(await matches(job))) {
    throw new WeightsUnavailable(`${name} in R2 does not have the bytes that its digest names`);
  }
}

/** The tier that had the chunk. Raises WeightsUnavailable when none has it. */
async function readChunk(job: Job, sources: Sources): Promise<Tier> {
  if (fromMemory(job, sources)) return "memory";
  if (await fromKv(job, sources)) return "kv";
  await fromR2(job, sources);
  return "r2";
}

/** Run `work` on every item, `width` at a time; after the first failure nothing new starts, and it is raised. */
async function eachLimited<T>(items: readonly T[], width: number, work: (item: T) => Promise<void>): Promise<void> {
  let next = 0;
  let failed = false;
  const lane = async () => {
    while (!failed && next < items.length) {
      try {
        await work(items[next++] as T);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const ends = await Promise.allSettled(Array.from({ length: Math.min(width, items.length) }, lane));
  for (const end of ends) if (end.status === "rejected") throw end.reason;
}

async function writeBack(jobs: readonly Job[], kv: Sources["kv"]): Promise<void> {
  if (kv === null) return;
  for (const { chunk, sink, offset } of jobs) {
    // One at a time bounds memory. A failure (a key may be written once a second) only costs a later read from R2.
    const bytes = sink.view(offset, chunk.size);
    if (bytes === null) continue;
    await kv.namespace.put(keyOf(chunk.sha256), bytes, { expirationTtl: kv.ttl }).catch(() => undefined);
  }
}

/** A job for every chunk, and a buffer for every file without a sink. */
function plan(artifact: Artifact, sinks: ReadonlyMap<string, Sink>) {
  const files = new Map<string, Uint8Array>();
  const jobs: Job[] = [];
  for (const [file, { size, chunks }] of artifact.files) {
    let sink = sinks.get(file);
    if (sink === undefined) {
      const buffer = new BufferSink(size);
      files.set(file, buffer.bytes);
      sink = buffer;
    }
    let offset = 0;
    for (const chunk of chunks) {
      jobs.push({ file, chunk, sink, offset });
      offset += chunk.size;
    }
  }
  return { files, jobs };
}

/**
 * Every file of the artifact, each in its sink or in one buffer of its own, filled in place as its bytes arrive.
 * Raises WeightsUnavailable; what was read until then still goes to KV. `later` keeps work alive after the answer.
 */
export async function loadFiles(
  artifact: Artifact,
  sinks: ReadonlyMap<string, Sink>,
  sources: Sources,
  later: (work: Promise<void>) => void,
): Promise<LoadedFiles> {
  const { files, jobs } = plan(artifact, sinks);
  const tiers: TierCounts = { memory: 0, kv: 0, r2: 0 };
  const missed: Job[] = [];
  let written = Promise.resolve();
  try {
    await eachLimited(jobs, CONNECTIONS, async (job) => {
      const tier = await readChunk(job, sources);
      tiers[tier] += 1;
      if (tier === "r2") missed.push(job);
    });
  } finally {
    written = writeBack(missed, sources.kv);
    later(written);
  }
  return { files, tiers, written };
}
