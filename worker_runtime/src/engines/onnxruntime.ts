/**
 * onnxruntime-web 1.18, the last version with a build without threads: needs no SharedArrayBuffer and no Worker.
 * Its `wasm-core` bundle has neither WebGL nor the proxy worker. How the wasm gets in: see onnxruntime-wasm.ts.
 */

import { env, InferenceSession, Tensor } from "onnxruntime-web/wasm-core";
import type { InputName, ModelInfo } from "../config";
import { BufferSink } from "./buffer";
import type { Encoding, Engine, EngineModel, Loading } from "./engine";
import { wasmBytes } from "./onnxruntime-wasm";

const OPTIONS: InferenceSession.SessionOptions = {
  executionProviders: ["wasm"],
  graphOptimizationLevel: "all",
  // An arena keeps what it once took, and a memory pattern is kept for every input length: both cost memory only.
  enableCpuMemArena: false,
  enableMemPattern: false,
  logSeverityLevel: 3,
};

const FIELD: Readonly<Record<InputName, keyof Encoding>> = {
  input_ids: "ids",
  attention_mask: "mask",
  token_type_ids: "types",
};

class OnnxModel implements EngineModel {
  constructor(
    private readonly session: InferenceSession,
    private readonly info: ModelInfo,
  ) {}

  async run(encoding: Encoding): Promise<Float32Array> {
    const feeds: Record<string, Tensor> = {};
    for (const name of this.info.inputs) {
      const values = encoding[FIELD[name]];
      feeds[name] = new Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
    }
    const output = (await this.session.run(feeds))[this.info.output];
    if (!(output?.data instanceof Float32Array) || output.data.length !== this.info.dimensions) {
      throw new Error(`the model's output ${this.info.output} is not ${this.info.dimensions} float32 numbers`);
    }
    return output.data;
  }

  /** One after the other: dynamic int8 quantises a batch with one scale, so that its texts would change each other. */
  async runMany(encodings: readonly Encoding[]): Promise<Float32Array[]> {
    const rows: Float32Array[] = [];
    for (const encoding of encodings) rows.push(await this.run(encoding));
    return rows;
  }

  async dispose(): Promise<void> {
    await this.session.release();
  }
}

/** onnxruntime copies the whole file into its own memory when it is there. */
class OnnxLoading extends BufferSink implements Loading {
  async finish(info: ModelInfo): Promise<EngineModel> {
    env.wasm.numThreads = 1;
    env.wasm.simd = true;
    env.wasm.proxy = false;
    return new OnnxModel(await InferenceSession.create(this.bytes, OPTIONS), info);
  }

  abandon(): void {}
}

export const onnxruntime: Engine = {
  name: "onnxruntime",
  file: "model.onnx",

  open: (size) => new OnnxLoading(size),

  memory: wasmBytes,
};
