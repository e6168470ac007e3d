/** The built Worker in real workerd, with R2, KV and `request.cf` under the test's control. */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Miniflare, type MiniflareOptions } from "miniflare";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
export const PYTHON = process.env["EDGESPEC_PYTHON"] ?? "python3";
export const COMPATIBILITY_DATE = "2026-07-01";

export const sha256 = (bytes: Uint8Array | string): string => createHash("sha256").update(bytes).digest("hex");
export const keyOf = (digest: string): string => `artifacts/${digest}`;

/** What tests change inside a JSON document. */
// biome-ignore lint: the documents are JSON
export type Json = any;

export interface Artifact {
  readonly digest: string;
  readonly manifest: Json;
  /** Every chunk's bytes by digest. */
  readonly chunks: ReadonlyMap<string, Uint8Array>;
  /** Digests of one file's chunks, in order. */
  readonly chunksOf: (file: string) => string[];
}

export type EngineName = "onnxruntime" | "edge";
const MODEL_FILE = { onnxruntime: "model.onnx", edge: "model.edge" };

/** Pack a folder with the engine's model, tokenizer.json, tokenizer_config.json as an artifact. */
export function pack(folder: string, description: Json, chunkBytes = 8 * 1024 * 1024, engine: EngineName = "onnxruntime"): Artifact {
  const chunks = new Map<string, Uint8Array>();
  const files: Record<string, { sha256: string; size: number; chunks: { sha256: string; size: number }[] }> = {};
  for (const name of [MODEL_FILE[engine], "tokenizer.json", "tokenizer_config.json"]) {
    const bytes = readFileSync(join(folder, name));
    const entry = { sha256: sha256(bytes), size: bytes.length, chunks: [] as { sha256: string; size: number }[] };
    for (let at = 0; at < bytes.length; at += chunkBytes) {
      const chunk = bytes.subarray(at, at + chunkBytes);
      chunks.set(sha256(chunk), chunk);
      entry.chunks.push({ sha256: sha256(chunk), size: chunk.length });
    }
    files[name] = entry;
  }
  const manifest = { format: "edgespec.artifact/v1", engine, ...description, files };
  const chunksOf = (file: string) => (files[file]?.chunks ?? []).map((chunk) => chunk.sha256);
  return { digest: sha256(JSON.stringify(manifest)), manifest, chunks, chunksOf };
}

let made: string | undefined;

/** The folder that fixtures/make.py fills, made once a process and removed with it. */
function fixtureFolder(): string {
  if (made === undefined) {
    const folder = mkdtempSync(join(tmpdir(), "edgespec-fixtures-"));
    process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
    execFileSync(PYTHON, [join(ROOT, "test/fixtures/make.py"), folder], { stdio: ["ignore", "inherit", "inherit"] });
    made = folder;
  }
  return made;
}

export function fixtureNames(): string[] {
  return readdirSync(fixtureFolder()).sort();
}

/** A fixture's artifact; `chunkBytes` small enough gives the model several chunks. */
export function fixture(name: string, chunkBytes = 16 * 1024, engine: EngineName = "onnxruntime"): Artifact {
  const folder = join(fixtureFolder(), name);
  return pack(folder, JSON.parse(readFileSync(join(folder, "task.json"), "utf8")), chunkBytes, engine);
}

/** An embedding model of about so many megabytes for the edge engine. */
export function largeFixture(megabytes: number): Artifact {
  const name = `edge-${megabytes}`;
  const folder = join(fixtureFolder(), "..", `${basename(fixtureFolder())}-${name}`);
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  execFileSync(PYTHON, [join(ROOT, "test/fixtures/make.py"), folder, name, String(megabytes)], { stdio: ["ignore", "inherit", "inherit"] });
  const description = JSON.parse(readFileSync(join(folder, name, "task.json"), "utf8"));
  return pack(join(folder, name), description, 8 * 1024 * 1024, "edge");
}

export interface ShardOptions {
  readonly artifact: Artifact;
  readonly continents?: readonly string[];
  readonly countries?: readonly string[];
}

export interface EdgeOptions {
  readonly shards: Readonly<Record<string, ShardOptions>>;
  readonly kv?: { readonly ttl: number; readonly cache_ttl: number } | null;
  readonly memory?: number;
  readonly limits?: Readonly<Record<string, number>>;
  /** Changes to config.json that the other options cannot express. */
  readonly change?: (config: Json) => void;
  readonly miniflare?: Partial<MiniflareOptions>;
}

export const bindingOf = (shard: string): string => `WEIGHTS_${shard.toUpperCase().replaceAll("-", "_")}`;

export function makeConfig({ shards, kv = null, memory = 0, limits = {}, change }: EdgeOptions): Json {
  const entries = Object.entries(shards);
  const config = {
    format: "edgespec.worker-config/v1",
    name: "support-intent",
    default_shard: entries[0]?.[0],
    shards: Object.fromEntries(
      entries.map(([name, { artifact, continents = [], countries = [] }]) => [
        name,
        { bucket: bindingOf(name), artifact: artifact.digest, continents, countries },
      ]),
    ),
    artifacts: Object.fromEntries(entries.map(([, { artifact }]) => [artifact.digest, artifact.manifest])),
    cache: { weights: { memory, kv: kv && { binding: "WEIGHTS_KV", ...kv } } },
    limits: { texts: 32, text_bytes: 32_768, body_bytes: 1_048_576, ...limits },
  };
  change?.(config);
  return config;
}

/** The uploaded modules, as `wrangler` and edgespec send them. */
export function modules(config: Json) {
  const dist = (name: string) => readFileSync(join(ROOT, "dist", name));
  return [
    { type: "ESModule" as const, path: "worker.js", contents: dist("worker.js").toString() },
    ...["edge-relaxed.wasm", "edge-simd.wasm", "ort-wasm-simd.wasm"].map((path) => ({
      type: "CompiledWasm" as const,
      path,
      contents: dist(path),
    })),
    { type: "Text" as const, path: "config.json", contents: JSON.stringify(config) },
  ];
}

export class Edge {
  readonly miniflare: Miniflare;
  readonly url: URL;

  constructor(miniflare: Miniflare, url: URL) {
    this.miniflare = miniflare;
    this.url = url;
  }

  fetch(path: string, init?: RequestInit & { readonly cf?: Json }): Promise<Response> {
    const { cf, ...rest } = init ?? {};
    const headers = new Headers(rest.headers);
    if (cf !== undefined) headers.set("MF-CF-Blob", JSON.stringify(cf));
    return fetch(new URL(path, this.url), { ...rest, headers });
  }

  /** POST /infer with a JSON body. */
  async infer(body: unknown, cf?: Json): Promise<{ status: number; body: Json; headers: Headers }> {
    const response = await this.fetch("/infer", { method: "POST", body: JSON.stringify(body), ...(cf && { cf }) });
    return { status: response.status, body: await response.json(), headers: response.headers };
  }

  async load(cf?: Json): Promise<{ status: number; body: Json }> {
    const response = await this.fetch("/healthz?load=1", cf && { cf });
    return { status: response.status, body: await response.json() };
  }

  bucket(shard = "world") {
    return this.miniflare.getR2Bucket(bindingOf(shard));
  }

  kv() {
    return this.miniflare.getKVNamespace("WEIGHTS_KV");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.miniflare.dispose();
  }
}

/** Start the Worker with every shard's bucket filled. Nothing is fetched: `cf` is fixed and the port is loopback. */
export async function start(options: EdgeOptions): Promise<Edge> {
  const miniflare = new Miniflare({
    modules: modules(makeConfig(options)),
    compatibilityDate: COMPATIBILITY_DATE,
    host: "127.0.0.1",
    port: 0,
    cf: { country: "US", continent: "NA", colo: "TST" },
    r2Buckets: Object.keys(options.shards).map(bindingOf),
    ...(options.kv ? { kvNamespaces: ["WEIGHTS_KV"] } : {}),
    ...options.miniflare,
  } as MiniflareOptions);
  const edge = new Edge(miniflare, await miniflare.ready);
  for (const [shard, { artifact }] of Object.entries(options.shards)) {
    const bucket = await edge.bucket(shard);
    for (const [digest, bytes] of artifact.chunks) await bucket.put(keyOf(digest), bytes);
  }
  return edge;
}
