/**
 * edgespec's own engine: worker_runtime/engine, C compiled to some 60 KB of WebAssembly. A model's file streams straight
 * into wasm memory; all that runs need is allocated when the last byte has been verified, and memory never grows again.
 */

import relaxed from "../../engine/dist/edge-relaxed.wasm";
import simd from "../../engine/dist/edge-simd.wasm";
import type { ModelInfo } from "../config";
import type { Encoding, Engine, EngineModel, Loading } from "./engine";

/** What the wasm exports: see docs/engine.md. */
interface Exports {
  readonly memory: WebAssembly.Memory;
  alloc_file(bytes: number): number;
  load(bytes: number, maxTokens: number, maxTexts: number): number;
  error_detail(): number;
  ids_ptr(): number;
  lens_ptr(): number;
  run(texts: number): number;
  out_ptr(): number;
  out_rows(): number;
  out_cols(): number;
  out_stride(): number;
  probe(): number;
  reset(): void;
}

/** Texts, and tokens of all of them, that one run takes: longer texts raise the second. More leave the near caches. */
const BATCH_TEXTS = 32;
const BATCH_TOKENS = 128;
const KINDS = ["7 bit", "8 bit", "8 bit, signed", "12 bit"];
const ERRORS = [
  ...["", "called out of order", "the header does not fit the file", "tensor", "register", "operation"],
  ...["there is not enough memory", "too many texts or tokens", "a text is empty or too long", "a token id is unknown"],
];

class EdgeError extends Error {
  override readonly name = "EdgeError";

  constructor(code: number, detail: number) {
    super(`the edge engine refuses: ${ERRORS[code] ?? code} (${detail})`);
  }
}

/** An instance with a memory of its own. A model that goes leaves it to the next one, since wasm memory never shrinks. */
class Instance {
  readonly x: Exports;
  readonly kind: string;

  constructor() {
    this.x = newest();
    this.kind = KINDS[this.x.probe()] ?? "unknown";
  }

  bytes(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.x.memory.buffer as ArrayBuffer);
  }
}

function newest(): Exports {
  try {
    return new WebAssembly.Instance(relaxed, {}).exports as unknown as Exports;
  } catch {
    return new WebAssembly.Instance(simd, {}).exports as unknown as Exports;
  }
}

const all: Instance[] = [];
const idle: Instance[] = [];

class EdgeModel implements EngineModel {
  readonly kind: string;
  #instance: Instance | null;

  constructor(
    instance: Instance,
    private readonly info: ModelInfo,
    private readonly maxTokens: number,
    private readonly gone: () => void,
  ) {
    this.#instance = instance;
    this.kind = instance.kind;
  }

  async run(encoding: Encoding): Promise<Float32Array> {
    return this.#batch([encoding])[0] as Float32Array;
  }

  async runMany(encodings: readonly Encoding[]): Promise<Float32Array[]> {
    const rows: Float32Array[] = [];
    let batch: Encoding[] = [];
    let tokens = 0;
    for (const encoding of encodings) {
      if (batch.length === BATCH_TEXTS || tokens + encoding.ids.length > this.maxTokens) {
        rows.push(...this.#batch(batch));
        batch = [];
        tokens = 0;
      }
      batch.push(encoding);
      tokens += encoding.ids.length;
    }
    return batch.length === 0 ? rows : rows.concat(this.#batch(batch));
  }

  #batch(texts: readonly Encoding[]): Float32Array[] {
    if (this.#instance === null) throw new Error("the model has been let go");
    const { x } = this.#instance;
    const lengths = new Int32Array(x.memory.buffer, x.lens_ptr(), texts.length);
    const tokens = texts.reduce((sum, { ids }) => sum + ids.length, 0);
    if (tokens > this.maxTokens) throw new EdgeError(7, 0);
    const ids = new Int32Array(x.memory.buffer, x.ids_ptr(), tokens);
    let at = 0;
    texts.forEach((text, i) => {
      lengths[i] = text.ids.length;
      ids.set(text.ids, at);
      at += text.ids.length;
    });
    const failure = x.run(texts.length);
    if (failure !== 0) throw new EdgeError(failure, x.error_detail());
    const { dimensions } = this.info;
    const [start, step] = [x.out_ptr(), 4 * x.out_stride()];
    return texts.map((_, row) => new Float32Array(x.memory.buffer, start + row * step, dimensions).slice());
  }

  async dispose(): Promise<void> {
    if (this.#instance === null) return;
    this.#instance = null;
    this.gone();
  }
}

class EdgeLoading implements Loading {
  readonly #start: number;
  /** Null once another model may have the memory. */
  #instance: Instance | null;

  constructor(private readonly size: number) {
    const instance = idle.pop() ?? new Instance();
    if (!all.includes(instance)) all.push(instance);
    this.#start = instance.x.alloc_file(size);
    if (this.#start === 0) {
      idle.push(instance);
      throw new EdgeError(6, size);
    }
    this.#instance = instance;
  }

  write(offset: number, bytes: Uint8Array): void {
    if (offset + bytes.byteLength > this.size) throw new RangeError("bytes beyond the end of the model's file");
    this.#instance?.bytes().set(bytes, this.#start + offset);
  }

  view(offset: number, size: number): Uint8Array<ArrayBuffer> | null {
    const at = this.#start + offset;
    return this.#instance?.bytes().subarray(at, at + size) ?? null;
  }

  async finish(info: ModelInfo, maxTokens: number): Promise<EngineModel> {
    const instance = this.#instance;
    if (instance === null) throw new Error("the model has been let go");
    const tokens = Math.max(maxTokens, BATCH_TOKENS);
    const failure = instance.x.load(this.size, tokens, BATCH_TEXTS);
    if (failure !== 0) throw new EdgeError(failure, instance.x.error_detail());
    if (instance.x.out_cols() !== info.dimensions) {
      throw new Error(`the model's output has ${instance.x.out_cols()} columns, not ${info.dimensions}`);
    }
    return new EdgeModel(instance, info, tokens, () => this.abandon());
  }

  abandon(): void {
    const instance = this.#instance;
    if (instance === null) return;
    this.#instance = null;
    instance.x.reset();
    idle.push(instance);
  }
}

export const edge: Engine = {
  name: "edge",
  file: "model.edge",

  open: (size) => new EdgeLoading(size),

  memory: () => all.reduce((sum, { x }) => sum + x.memory.buffer.byteLength, 0),
};
