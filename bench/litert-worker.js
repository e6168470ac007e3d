// LiteRT.js for bench/engine-worker.js. bench/engine.mjs bundles this file once for each of its builds, since the library
// has one instance a bundle; litert-script and litert-wasm are the build's own.
import { loadLiteRt, Tensor } from "@litertjs/core";

let loading;

/** One model of one fixed length, and its output for ids. */
export async function open(bytes) {
  loading ??= loadLiteRt("litert.js");
  const model = await (await loading).loadAndCompile(bytes, { accelerator: "wasm" });
  return {
    close: () => model.delete(),
    async run(ids) {
      const input = new Tensor(ids, [1, ids.length]);
      const [output] = await model.run([input]);
      const values = await output.data();
      input.delete();
      output.delete();
      return values;
    },
  };
}
