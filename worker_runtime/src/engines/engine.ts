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
  /** One text in, one row of `dimensions` numbers out. Never batched, never padded: see docs/worker-runtime.md. */
  run(encoding: Encoding): Promise<Float32Array>;
  /** Give the memory back to the engine. The model must not be run afterwards. */
  dispose(): Promise<void>;
}

export interface Engine {
  readonly name: string;
  /** Read a model. `bytes` are copied: the caller may drop them when this returns. Raises when they are no model. */
  load(bytes: Uint8Array, info: ModelInfo): Promise<EngineModel>;
  /** Bytes of wasm memory now; it never shrinks. 0 before the first load. */
  memory(): number;
}
