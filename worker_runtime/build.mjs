// Bundle the Worker into dist/: `node build.mjs`, or `node build.mjs --check` to ask whether dist/ is fresh.
//
// The same sources and lock file give the same bytes: nothing of the clock, the machine or the folder gets in.
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = dirname(fileURLToPath(import.meta.url));
const DIST = join(ROOT, "dist");
/** Wasm modules of the upload, by the name under which the bundle imports them. */
const WASM = new Map([
  ["edge-relaxed.wasm", "engine/dist/edge-relaxed.wasm"],
  ["edge-simd.wasm", "engine/dist/edge-simd.wasm"],
  ["ort-wasm-simd.wasm", "node_modules/onnxruntime-web/dist/ort-wasm-simd.wasm"],
]);
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

async function sourceFiles() {
  const entries = await readdir(join(ROOT, "src"), { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  const others = ["licenses/onnxruntime.txt", "package-lock.json", "build.mjs", ...[...WASM.values()].slice(0, 2)];
  return [...files, ...others.map((name) => join(ROOT, name))].sort();
}

/** Over the name and the bytes of everything that decides what dist/ is. */
async function sourceDigest() {
  const hash = createHash("sha256");
  for (const file of await sourceFiles()) {
    hash.update(`${relative(ROOT, file).split(sep).join("/")}\0${sha256(await readFile(file))}\n`);
  }
  return hash.digest("hex");
}

/** The wasm and config.json stay modules of the upload: Workers compile no wasm, and config.json differs per spec. */
const uploadedModules = {
  name: "uploaded-modules",
  setup(build) {
    build.onResolve({ filter: /\.wasm$/ }, ({ path }) => ({ path: `./${basename(path)}`, external: true }));
    build.onResolve({ filter: /\/config\.json$/ }, () => ({ path: "./config.json", external: true }));
  },
};

/** Give onnxruntime's Emscripten loader its hook for instantiating the imported module: src/engines/onnxruntime-wasm.ts. */
const onnxruntimeLoader = {
  name: "onnxruntime-loader",
  setup(build) {
    build.onLoad({ filter: /ort\.wasm-core\.min\.js$/ }, async ({ path }) => {
      const parts = (await readFile(path, "utf8")).split("({locateFile:");
      if (parts.length !== 2) throw new Error(`${path} is not the onnxruntime-web that this build knows`);
      const hook = JSON.stringify(join(ROOT, "src/engines/onnxruntime-wasm.ts"));
      const contents = `import {instantiateWasm as $instantiateWasm} from ${hook};\n${parts.join("({instantiateWasm:$instantiateWasm,locateFile:")}`;
      return { contents, loader: "js" };
    });
  },
};

/** Packages in the bundle and where their licence's text is; onnxruntime-web ships none. */
const LICENSED = [
  ["onnxruntime-web", "licenses/onnxruntime.txt"],
  ["onnxruntime-common", "licenses/onnxruntime.txt"],
  ["@huggingface/tokenizers", "node_modules/@huggingface/tokenizers/LICENSE"],
];

async function packageLine(name) {
  const { version, license } = JSON.parse(await readFile(join(ROOT, "node_modules", name, "package.json"), "utf8"));
  return `${name} ${version} (${license})`;
}

/** For LICENSES.txt, which goes wherever the bundle is shipped: MIT and Apache-2.0 ask that their texts go along. */
async function licenses() {
  const names = new Map();
  for (const [name, path] of LICENSED) names.set(path, [...(names.get(path) ?? []), await packageLine(name)]);
  const parts = [];
  for (const [path, lines] of names) parts.push(`${lines.join("\n")}\n\n${await readFile(join(ROOT, path), "utf8")}`);
  return parts.join(`\n${"-".repeat(80)}\n\n`);
}

async function banner() {
  const lines = await Promise.all(LICENSED.map(([name]) => packageLine(name)));
  return `/*! Contains ${lines.join(", ")}; their licences are in LICENSES.txt of edgespec's Worker bundle. */`;
}

/** The bundle of one engine alone leaves the other's code and wasm out. */
const edgeAlone = {
  name: "edge-alone",
  setup(build) {
    build.onResolve({ filter: /^\.\/bundled$/ }, () => ({ path: join(ROOT, "src/engines/bundled-edge.ts") }));
  },
};

async function bundle(...plugins) {
  const { build } = await import("esbuild");
  const result = await build({
    entryPoints: [join(ROOT, "src/index.ts")],
    absWorkingDir: ROOT,
    bundle: true,
    write: false,
    format: "esm",
    platform: "neutral",
    mainFields: ["module", "main"],
    conditions: ["import", "default"],
    target: "es2024",
    minify: true,
    banner: { js: await banner() },
    charset: "utf8",
    legalComments: "eof",
    loader: { ".html": "text" },
    // The loader looks for Node and for a page: in a Worker it must find neither.
    define: { process: "undefined", document: "undefined", importScripts: "undefined", window: "undefined" },
    plugins: [...plugins, uploadedModules, onnxruntimeLoader],
    logLevel: "warning",
  });
  const code = result.outputFiles[0].text;
  for (const word of [/\beval\(/, /\bnew Function\b/, /\bnew Worker\b/]) {
    if (word.test(code)) throw new Error(`the bundle has ${word}, which a Worker refuses`);
  }
  return Buffer.from(code);
}

/** Which files are uploaded with an artifact of each engine; the first is the main module. */
const BUNDLES = {
  edge: ["worker-edge.js", "edge-relaxed.wasm", "edge-simd.wasm"],
  onnxruntime: ["worker.js", "ort-wasm-simd.wasm", "edge-relaxed.wasm", "edge-simd.wasm"],
};

async function writeAtomically(name, bytes) {
  const target = join(DIST, name);
  await writeFile(`${target}.new`, bytes);
  await rename(`${target}.new`, target);
}

async function build() {
  const digest = await sourceDigest();
  const outputs = [
    { name: "worker.js", type: "application/javascript+module", bytes: await bundle() },
    { name: "worker-edge.js", type: "application/javascript+module", bytes: await bundle(edgeAlone) },
  ];
  for (const [name, path] of WASM) outputs.push({ name, type: "application/wasm", bytes: await readFile(join(ROOT, path)) });
  const files = outputs.map(({ name, type, bytes }) => ({ name, type, sha256: sha256(bytes), size: bytes.length }));
  await mkdir(DIST, { recursive: true });
  await rm(join(DIST, "manifest.json"), { force: true });
  for (const { name, bytes } of outputs) await writeAtomically(name, bytes);
  await writeAtomically("LICENSES.txt", await licenses());
  await writeAtomically("manifest.json", `${JSON.stringify({ files, bundles: BUNDLES, source_digest: digest }, null, 2)}\n`);
  for (const { name, size } of files) console.log(`${name} ${size} bytes`);
}

/** Why dist/ is not what the sources make, or null. */
async function staleness() {
  let manifest;
  try {
    manifest = JSON.parse(await readFile(join(DIST, "manifest.json"), "utf8"));
  } catch {
    return "worker_runtime/dist is not built";
  }
  if (manifest.source_digest !== (await sourceDigest())) return "worker_runtime/dist was built from other sources";
  for (const { name, sha256: expected } of manifest.files) {
    const bytes = await readFile(join(DIST, name)).catch(() => null);
    if (bytes === null || sha256(bytes) !== expected) return `worker_runtime/dist/${name} is not what was built`;
  }
  return null;
}

if (process.argv.includes("--check")) {
  const reason = await staleness();
  if (reason !== null) console.error(`${reason}: run \`npm run build\` in worker_runtime`);
  process.exitCode = reason === null ? 0 : 1;
} else {
  await build();
}
