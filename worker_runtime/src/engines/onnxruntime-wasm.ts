/**
 * The one wasm instance of onnxruntime, made from a module that is part of the upload.
 *
 * `build.mjs` hands `instantiateWasm` to Emscripten's loader inside onnxruntime-web, which would otherwise compile
 * bytes, and Workers refuse that.
 */

import wasm from "../../node_modules/onnxruntime-web/dist/ort-wasm-simd.wasm";

let memory: WebAssembly.Memory | undefined;

/** Emscripten's hook `Module.instantiateWasm`. */
export function instantiateWasm(
  imports: WebAssembly.Imports,
  receive: (instance: WebAssembly.Instance, module: WebAssembly.Module) => WebAssembly.Exports,
): WebAssembly.Exports {
  const instance = new WebAssembly.Instance(wasm, imports);
  memory = Object.values(instance.exports).find((item): item is WebAssembly.Memory => item instanceof WebAssembly.Memory);
  return receive(instance, wasm);
}

/** Bytes of its memory now; 0 before it is instantiated. */
export const wasmBytes = (): number => memory?.buffer.byteLength ?? 0;
