/** The Worker's configuration: the `config.json` module that is uploaded beside the code. Pure. */

export const CONFIG_FORMAT = "edgespec.worker-config/v1";
export const ARTIFACT_FORMAT = "edgespec.artifact/v1";

export interface Chunk {
  readonly sha256: string;
  readonly size: number;
}

export interface FileEntry {
  readonly size: number;
  readonly chunks: readonly Chunk[];
}

export type InputName = "input_ids" | "attention_mask" | "token_type_ids";

export interface ModelInfo {
  readonly inputs: readonly InputName[];
  readonly output: string;
  /** Columns of the output: labels, or the width of the embedding. */
  readonly dimensions: number;
}

/** A task's settings as the manifest has them. The task itself checks what it needs: see tasks/. */
export type TaskSettings = Readonly<Record<string, unknown>> & { readonly type: string; readonly max_tokens: number };

export interface Artifact {
  readonly digest: string;
  readonly engine: string;
  readonly task: TaskSettings;
  readonly model: ModelInfo;
  readonly files: ReadonlyMap<string, FileEntry>;
}

export interface Shard {
  readonly name: string;
  /** Name of the R2 binding that holds this shard's weights. */
  readonly bucket: string;
  readonly artifact: Artifact;
  readonly continents: readonly string[];
  readonly countries: readonly string[];
}

export interface KvTier {
  readonly binding: string;
  /** Seconds a chunk written back by the Worker lives. */
  readonly ttl: number;
  /** Seconds the edge may serve a KV read from its own cache. */
  readonly cacheTtl: number;
}

export interface Limits {
  readonly texts: number;
  readonly textBytes: number;
  readonly bodyBytes: number;
}

export interface WorkerConfig {
  readonly name: string;
  readonly defaultShard: Shard;
  readonly shards: readonly Shard[];
  readonly memory: number;
  readonly kv: KvTier | null;
  readonly limits: Limits;
  /** What people are shown for a label; empty where the spec says nothing. */
  readonly display: ReadonlyMap<string, string>;
}

/** The configuration cannot be used; the path says which value. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

type Json = Record<string, unknown>;

const INPUTS: readonly string[] = ["input_ids", "attention_mask", "token_type_ids"];
const DIGEST = /^[0-9a-f]{64}$/;

function fail(path: string, expected: string): never {
  throw new ConfigError(`config.json: ${path} must be ${expected}`);
}

function object(value: unknown, path: string): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) fail(path, "an object");
  return value as Json;
}

function list(value: unknown, path: string): readonly unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : fail(path, "a list");
}

function text(value: unknown, path: string): string {
  return typeof value === "string" && value !== "" ? value : fail(path, "a non-empty string");
}

function texts(value: unknown, path: string): string[] {
  return list(value, path).map((item, i) => text(item, `${path}[${i}]`));
}

function count(value: unknown, path: string, min: number): number {
  return Number.isSafeInteger(value) && (value as number) >= min ? (value as number) : fail(path, `an integer >= ${min}`);
}

function digest(value: unknown, path: string): string {
  return typeof value === "string" && DIGEST.test(value) ? value : fail(path, "a SHA-256 in hex");
}

function equals<T>(value: unknown, expected: T, path: string): T {
  return value === expected ? expected : fail(path, JSON.stringify(expected));
}

function fileEntry(value: unknown, path: string): FileEntry {
  const file = object(value, path);
  const size = count(file["size"], `${path}.size`, 0);
  const chunks = list(file["chunks"], `${path}.chunks`).map((item, i) => {
    const at = `${path}.chunks[${i}]`;
    const chunk = object(item, at);
    return { sha256: digest(chunk["sha256"], `${at}.sha256`), size: count(chunk["size"], `${at}.size`, 1) };
  });
  const total = chunks.reduce((sum, chunk) => sum + chunk.size, 0);
  if (total !== size) fail(`${path}.size`, `the sum of its chunks, ${total}`);
  return { size, chunks };
}

function artifact(value: unknown, key: string, path: string): Artifact {
  const manifest = object(value, path);
  equals(manifest["format"], ARTIFACT_FORMAT, `${path}.format`);
  const model = object(manifest["model"], `${path}.model`);
  const task = object(manifest["task"], `${path}.task`);
  const files = Object.entries(object(manifest["files"], `${path}.files`));
  const inputs = texts(model["inputs"], `${path}.model.inputs`);
  if (!inputs.includes("input_ids") || inputs.some((name) => !INPUTS.includes(name))) {
    fail(`${path}.model.inputs`, `input_ids and any of ${INPUTS.slice(1).join(", ")}`);
  }
  return {
    digest: digest(key, `${path} (its key)`),
    engine: text(manifest["engine"], `${path}.engine`),
    task: {
      ...task,
      type: text(task["type"], `${path}.task.type`),
      max_tokens: count(task["max_tokens"], `${path}.task.max_tokens`, 3),
    },
    model: {
      inputs: inputs as InputName[],
      output: text(model["output"], `${path}.model.output`),
      dimensions: count(model["dimensions"], `${path}.model.dimensions`, 1),
    },
    files: new Map(files.map(([name, file]) => [name, fileEntry(file, `${path}.files["${name}"]`)])),
  };
}

function kvTier(value: unknown, path: string): KvTier | null {
  if (value === null) return null;
  const kv = object(value, path);
  return {
    binding: text(kv["binding"], `${path}.binding`),
    ttl: count(kv["ttl"], `${path}.ttl`, 60),
    cacheTtl: count(kv["cache_ttl"], `${path}.cache_ttl`, 30),
  };
}

function limits(value: unknown, path: string): Limits {
  const found = object(value, path);
  return {
    texts: count(found["texts"], `${path}.texts`, 1),
    textBytes: count(found["text_bytes"], `${path}.text_bytes`, 1),
    bodyBytes: count(found["body_bytes"], `${path}.body_bytes`, 1),
  };
}

/** Read config.json. Raises ConfigError with the path of the first value that does not fit. */
export function parseConfig(source: string): WorkerConfig {
  const root = object(JSON.parse(source), "the document");
  equals(root["format"], CONFIG_FORMAT, "format");
  const artifacts = new Map(
    Object.entries(object(root["artifacts"], "artifacts")).map(([key, value]) => [
      key,
      artifact(value, key, `artifacts["${key.slice(0, 12)}"]`),
    ]),
  );
  const shards = Object.entries(object(root["shards"], "shards")).map(([name, value]): Shard => {
    const path = `shards["${name}"]`;
    const shard = object(value, path);
    return {
      name,
      bucket: text(shard["bucket"], `${path}.bucket`),
      artifact: artifacts.get(digest(shard["artifact"], `${path}.artifact`)) ?? fail(`${path}.artifact`, "one of artifacts"),
      continents: texts(shard["continents"], `${path}.continents`),
      countries: texts(shard["countries"], `${path}.countries`),
    };
  });
  const weights = object(object(root["cache"], "cache")["weights"], "cache.weights");
  return {
    name: text(root["name"], "name"),
    defaultShard: shards.find(({ name }) => name === root["default_shard"]) ?? fail("default_shard", "one of shards"),
    shards,
    memory: count(weights["memory"], "cache.weights.memory", 0),
    kv: kvTier(weights["kv"], "cache.weights.kv"),
    limits: limits(root["limits"], "limits"),
    display: new Map(
      Object.entries(object(root["display"] ?? {}, "display")).map(([label, shown]) => [label, text(shown, `display["${label}"]`)]),
    ),
  };
}
