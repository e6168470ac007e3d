// For bench/engine.py: workerd with the edge engine and onnxruntime-web in one isolate, and the models in its R2.
// Reads {"models": {key: path}} on stdin, prints {"url"} and stays until stdin ends.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";

const RUNTIME = join(import.meta.dirname, "../worker_runtime");
const require = createRequire(join(RUNTIME, "package.json"));
const { build } = require("esbuild");
const { Miniflare } = require("miniflare");
const WASM = ["engine/dist/edge-relaxed.wasm", "engine/dist/edge-simd.wasm", "node_modules/onnxruntime-web/dist/ort-wasm-simd.wasm"];

const uploadedModules = {
  name: "uploaded-modules",
  setup: (on) => on.onResolve({ filter: /\.wasm$/ }, ({ path }) => ({ path: `./${basename(path)}`, external: true })),
};

// The same hook that worker_runtime/build.mjs gives onnxruntime's loader.
const onnxruntimeLoader = {
  name: "onnxruntime-loader",
  setup: (on) =>
    on.onLoad({ filter: /ort\.wasm-core\.min\.js$/ }, ({ path }) => {
      const hook = JSON.stringify(join(RUNTIME, "src/engines/onnxruntime-wasm.ts"));
      const code = readFileSync(path, "utf8").replace("({locateFile:", "({instantiateWasm:$instantiateWasm,locateFile:");
      return { contents: `import {instantiateWasm as $instantiateWasm} from ${hook};\n${code}`, loader: "js" };
    }),
};

async function bundle() {
  const { outputFiles } = await build({
    entryPoints: [join(import.meta.dirname, "engine-worker.js")],
    bundle: true,
    write: false,
    format: "esm",
    platform: "neutral",
    mainFields: ["module", "main"],
    conditions: ["import", "default"],
    target: "es2024",
    nodePaths: [join(RUNTIME, "node_modules")],
    define: { process: "undefined", document: "undefined", importScripts: "undefined", window: "undefined" },
    plugins: [uploadedModules, onnxruntimeLoader],
  });
  return outputFiles[0].text;
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const { models } = JSON.parse((await lines.next()).value);
const contents = (path) => readFileSync(join(RUNTIME, path));
if (!WASM.every((path) => existsSync(join(RUNTIME, path)))) throw new Error("run scripts/setup first");
const miniflare = new Miniflare({
  modules: [
    { type: "ESModule", path: "worker.js", contents: await bundle() },
    ...WASM.map((path) => ({ type: "CompiledWasm", path: basename(path), contents: contents(path) })),
  ],
  compatibilityDate: "2026-07-01",
  host: "127.0.0.1",
  port: 0,
  cf: false,
  r2Buckets: ["MODELS"],
});
const url = await miniflare.ready;
const bucket = await miniflare.getR2Bucket("MODELS");
for (const [key, path] of Object.entries(models)) await bucket.put(key, readFileSync(path));
process.stdout.write(`${JSON.stringify({ url: url.href })}\n`);
await lines.next();
await miniflare.dispose();
