/** What an inference engine is. Implementations are registered in `engines/index.ts`. */

import type { ModelInfo } from "../config";

/** One text as the model reads it; the three lists have the same length. */
export interface Encoding {
  readonly ids: readonly number[];
  readonly mask: readonly number[];
  readonly types: readonly number[];
}

/** A model in the engine's memory. */
export interface EngineModel {
  /** How it computes on this machine, where the engine has several ways. */
  readonly kind?: string;
  /** One text in, one row of `dimensions` numbers out. Never padded: see docs/worker-runtime.md. */
  run(encoding: Encoding): Promise<Float32Array>;
  /** A row for every text: the rows that `run` would give, whatever the engine does at once. */
  runMany(encodings: readonly Encoding[]): Promise<Float32Array[]>;
  /** Give the memory back to the engine. The model must not be run afterwards. */
  dispose(): Promise<void>;
}

/**
 * Where a file's bytes go as they arrive, and are verified where they are.
 * `view` is good until the next `await`; null when the bytes are no longer there.
 */
export interface Sink {
  write(offset: number, bytes: Uint8Array): void;
  view(offset: number, size: number): Uint8Array<ArrayBuffer> | null;
}

/** A model's file on its way into the engine. Exactly one of `finish` and `abandon` is called. */
export interface Loading extends Sink {
  /** All bytes are there. Raises when they are no model. */
  finish(info: ModelInfo, maxTokens: number): Promise<EngineModel>;
  abandon(): void;
}

export interface Engine {
  readonly name: string;
  /** The artifact's file that holds the model. */
  readonly file: string;
  /** Room for a model's file of `size` bytes. */
  open(size: number): Loading;
  /** Bytes of wasm memory now; it never shrinks. 0 before the first load. */
  memory(): number;
}
