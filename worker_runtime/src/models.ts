/** Models that the isolate has loaded: which stay, one load at a time, who may use one. */

import { MemoryTier } from "./cache";
import type { Artifact, Shard, WorkerConfig } from "./config";
import { engineMemory, findEngine } from "./engines";
import { BufferSink } from "./engines/buffer";
import type { EngineModel } from "./engines/engine";
import { JsonTokenizer, type Tokenizer } from "./tokenizer";
import { openTokenizer } from "./tokenizers/open";
import { loadFiles, type Sources, type TierCounts, WeightsUnavailable } from "./weights";

export interface LoadReport {
  readonly tiers: TierCounts;
  /** As this isolate's clock saw it; in production it moves on I/O only, so computing is not in it. */
  readonly milliseconds: number;
}

export interface Model {
  readonly tokenizer: Tokenizer;
  readonly engine: EngineModel;
  readonly report: LoadReport;
}

interface Entry {
  readonly bytes: number;
  readonly model: Promise<Model>;
  ready: Model | null;
  /** Requests that are running it now. */
  users: number;
}

/** What the platform gives an isolate: JavaScript heap, buffers and wasm memory together. */
const ISOLATE_BYTES = 128 * 1024 * 1024;
/** Kept free for the JavaScript heap: tokenizer, requests, answers. */
const HEAP_BYTES = 24 * 1024 * 1024;
/** Models stay side by side while their files are at most this large together; one larger model stays alone. */
const RESIDENT_BYTES = 24 * 1024 * 1024;
/** A load that has not ended after this was broken off with the request that started it. */
const STALLED_MS = 30_000;

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Wait for `work`, which another request may own and whose end may never come; raises WeightsUnavailable then. */
async function orStalled<T>(work: Promise<T>): Promise<T> {
  let timer = 0;
  const stalled = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new WeightsUnavailable("loading the model did not end")), STALLED_MS);
  });
  try {
    return await Promise.race([work, stalled]);
  } finally {
    clearTimeout(timer);
  }
}

const sizeOf = (artifact: Artifact): number => [...artifact.files.values()].reduce((sum, { size }) => sum + size, 0);

function fileOf(files: ReadonlyMap<string, Uint8Array>, name: string): Uint8Array {
  const found = files.get(name);
  if (found === undefined) throw new Error(`the artifact has no ${name}`);
  return found;
}

/** The artifact's tables where it has them, in a buffer of their own since the memory tier frees what it is given. */
function readTokenizer(files: ReadonlyMap<string, Uint8Array>): Tokenizer {
  const tables = files.get("tokenizer.bin");
  if (tables !== undefined) return openTokenizer(tables.slice().buffer);
  const decode = (name: string) => new TextDecoder().decode(fileOf(files, name));
  return new JsonTokenizer(decode("tokenizer.json"), decode("tokenizer_config.json"));
}

export class ModelStore {
  readonly memory: MemoryTier;
  /** In order of use, the oldest first. Holds no load that has failed. */
  readonly #entries = new Map<string, Entry>();
  #lastLoad: Promise<unknown> = Promise.resolve();
  readonly #config: WorkerConfig;
  readonly #env: Readonly<Record<string, unknown>>;

  constructor(config: WorkerConfig, env: Readonly<Record<string, unknown>>) {
    this.#config = config;
    this.#env = env;
    this.memory = new MemoryTier(config.memory);
  }

  isLoaded(artifact: Artifact): boolean {
    return this.#entries.get(artifact.digest)?.ready != null;
  }

  /** Run `work` with the shard's model, loading it first where needed. Raises WeightsUnavailable. */
  async use<T>(shard: Shard, context: ExecutionContext, work: (model: Model) => Promise<T>): Promise<T> {
    const { digest } = shard.artifact;
    const entry = this.#entries.get(digest) ?? this.#start(shard, context);
    this.#entries.delete(digest);
    this.#entries.set(digest, entry);
    entry.users += 1;
    try {
      return await work(entry.ready ?? (await orStalled(entry.model)));
    } catch (error) {
      if (entry.ready === null && this.#entries.get(digest) === entry) this.#entries.delete(digest);
      throw error;
    } finally {
      entry.users -= 1;
    }
  }

  #start(shard: Shard, context: ExecutionContext): Entry {
    const before = this.#lastLoad;
    const model = (async () => {
      await orStalled(before).catch(() => undefined);
      return this.#load(shard, context);
    })();
    const entry: Entry = { bytes: sizeOf(shard.artifact), model, ready: null, users: 0 };
    const settled = model.then(
      (ready) => {
        entry.ready = ready;
      },
      () => {
        if (this.#entries.get(shard.artifact.digest) === entry) this.#entries.delete(shard.artifact.digest);
      },
    );
    this.#lastLoad = settled;
    // Others wait for this load: it has to go on when the client that started it goes away.
    context.waitUntil(settled);
    return entry;
  }

  /** Let go of models not used for longest until `bytes` more may stay. */
  async #makeRoom(bytes: number): Promise<void> {
    const loaded = [...this.#entries].filter(([, entry]) => entry.ready !== null);
    let total = loaded.reduce((sum, [, entry]) => sum + entry.bytes, bytes);
    for (const [digest, entry] of loaded) {
      if (total <= RESIDENT_BYTES) return;
      this.#entries.delete(digest);
      total -= entry.bytes;
      // Running a model waits for no I/O, so its users are gone after a turn or two of the event loop.
      for (let turn = 0; entry.users > 0 && turn < 100; turn++) await sleep(1);
      await entry.ready?.engine.dispose();
    }
  }

  async #load(shard: Shard, context: ExecutionContext): Promise<Model> {
    const { artifact } = shard;
    const started = performance.now();
    const bytes = sizeOf(artifact);
    await this.#makeRoom(bytes);
    this.memory.limit(ISOLATE_BYTES - HEAP_BYTES - engineMemory() - bytes);
    const { engine, files, tiers, written } = await this.#loadEngine(shard, context);
    const tokenizer = readTokenizer(files);
    context.waitUntil(written.then(() => this.#keep(artifact, files)));
    return { tokenizer, engine, report: { tiers, milliseconds: Math.round(performance.now() - started) } };
  }

  /** The model's file goes to the engine as it arrives, the others into buffers. */
  async #loadEngine(shard: Shard, context: ExecutionContext) {
    const { artifact } = shard;
    const engine = findEngine(artifact.engine);
    const entry = artifact.files.get(engine.file);
    if (entry === undefined) throw new Error(`the artifact has no ${engine.file}`);
    const loading = engine.open(entry.size);
    try {
      const sinks = new Map([[engine.file, loading]]);
      const loaded = await loadFiles(artifact, sinks, this.#sources(shard), (work) => context.waitUntil(work));
      const files = new Map(loaded.files);
      if (loading instanceof BufferSink) files.set(engine.file, loading.bytes);
      return { ...loaded, files, engine: await loading.finish(artifact.model, artifact.task.max_tokens) };
    } catch (error) {
      loading.abandon();
      throw error;
    }
  }

  /** A loaded model is in wasm memory: its bytes are kept only where another artifact may oust it, else freed. */
  #keep(artifact: Artifact, files: ReadonlyMap<string, Uint8Array>): void {
    const artifacts = new Set(this.#config.shards.map((shard) => shard.artifact.digest));
    this.memory.limit(artifacts.size > 1 ? ISOLATE_BYTES - HEAP_BYTES - engineMemory() : 0);
    for (const [name, bytes] of files) this.memory.keep(bytes, artifact.files.get(name)?.chunks ?? []);
  }

  #sources(shard: Shard): Sources {
    const bucket = this.#env[shard.bucket] as R2Bucket | undefined;
    if (bucket === undefined) throw new Error(`the Worker has no binding ${shard.bucket}`);
    const { kv } = this.#config;
    const namespace = kv === null ? undefined : (this.#env[kv.binding] as KVNamespace | undefined);
    return {
      memory: this.memory,
      kv: kv !== null && namespace !== undefined ? { namespace, ttl: kv.ttl, cacheTtl: kv.cacheTtl } : null,
      bucket,
    };
  }
}
