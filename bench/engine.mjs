// For bench/engine.py: workerd with the edge engine and onnxruntime-web in one isolate, and the models in its R2.
// Reads {"models": {key: path}, "litert": node_modules | null} on stdin, prints {"url"} and stays until stdin ends.
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

async function bundle(entry, options) {
  const { outputFiles } = await build({
    entryPoints: [join(import.meta.dirname, entry)],
    bundle: true,
    write: false,
    format: "esm",
    platform: "neutral",
    mainFields: ["module", "main"],
    conditions: ["import", "default"],
    target: "es2024",
    define: { process: "undefined", document: "undefined", importScripts: "undefined", window: "undefined" },
    logLevel: "error",
    ...options,
  });
  return outputFiles[0].text;
}

// In a browser, @litertjs/wasm-utils puts a script into the page, which sets ModuleFactory and fetches its wasm.
const LITERT_LOADER = `
import factory from "litert-script";
import module from "litert.wasm";
const instantiateWasm = (imports, done) => (done(new WebAssembly.Instance(module, imports), module), {});
export const createWasmLib = async (Library) => new Library(await factory({ instantiateWasm, print() {}, printErr() {} }));
`;

/** The modules of LiteRT.js: each build with its wasm. `litert-compat` is the one without relaxed SIMD. */
async function litert(packages) {
  const modules = [];
  for (const [name, file] of [["litert", "litert_wasm_internal"], ["litert-compat", "litert_wasm_compat_internal"]]) {
    const path = join(packages, "@litertjs/core/wasm", file);
    const loader = {
      name: "litert-loader",
      setup: (on) => {
        on.onResolve({ filter: /^@litertjs\/wasm-utils$/ }, () => ({ path: "loader", namespace: "litert" }));
        on.onLoad({ filter: /.*/, namespace: "litert" }, () => ({ contents: LITERT_LOADER, resolveDir: packages }));
        on.onResolve({ filter: /^litert-script$/ }, () => ({ path: `${path}.js` }));
        on.onResolve({ filter: /^litert\.wasm$/ }, () => ({ path: `./${name}.wasm`, external: true }));
      },
    };
    const contents = await bundle("litert-worker.js", {
      nodePaths: [packages],
      external: ["node:*"],
      plugins: [loader],
      define: { document: "undefined", importScripts: "undefined", "self.location.href": '""' },
    });
    modules.push({ type: "ESModule", path: `${name}.js`, contents });
    modules.push({ type: "CompiledWasm", path: `${name}.wasm`, contents: readFileSync(`${path}.wasm`) });
  }
  return modules;
}

const WORKER = { nodePaths: [join(RUNTIME, "node_modules")], plugins: [uploadedModules, onnxruntimeLoader] };
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const { models, litert: packages } = JSON.parse((await lines.next()).value);
const contents = (path) => readFileSync(join(RUNTIME, path));
if (!WASM.every((path) => existsSync(join(RUNTIME, path)))) throw new Error("run scripts/setup first");
const miniflare = new Miniflare({
  modules: [
    { type: "ESModule", path: "worker.js", contents: await bundle("engine-worker.js", WORKER) },
    ...WASM.map((path) => ({ type: "CompiledWasm", path: basename(path), contents: contents(path) })),
    ...(packages ? await litert(packages) : []),
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
