// The Worker that bench/engine.py asks: /run?model=KEY&build=BUILD&tokens=N&texts=N&count=N, where BUILD is relaxed or simd
// (the edge engine), onnxruntime, litert or litert-compat. Every model stays loaded, but of LiteRT, whose models have one
// length each, one a build. With &output the answer has LiteRT's last embedding. A Worker's clock stands still while it computes, so the caller measures time.
import relaxed from "../worker_runtime/engine/dist/edge-relaxed.wasm";
import simd from "../worker_runtime/engine/dist/edge-simd.wasm";
import { onnxruntime } from "../worker_runtime/src/engines/onnxruntime.ts";

const MAX_TOKENS = 512;
const MAX_TEXTS = 32;
/** As src/engines/edge.ts. */
const BATCH_TOKENS = 128;
const loaded = new Map();

async function loadEdge(object, module) {
  const x = new WebAssembly.Instance(module, {}).exports;
  x.probe();
  const start = x.alloc_file(object.size);
  let at = start;
  for await (const chunk of object.body) {
    new Uint8Array(x.memory.buffer).set(chunk, at);
    at += chunk.byteLength;
  }
  const failure = x.load(object.size, MAX_TOKENS, MAX_TEXTS);
  if (failure !== 0) throw new Error(`load answers ${failure}`);
  return {
    kind: x.kind(),
    async run(tokens, texts) {
      const most = Math.max(1, Math.floor(BATCH_TOKENS / tokens));
      if (texts > most) {
        for (let left = texts; left > 0; left -= most) await this.run(tokens, Math.min(most, left));
        return;
      }
      new Int32Array(x.memory.buffer, x.lens_ptr(), texts).fill(tokens);
      const ids = new Int32Array(x.memory.buffer, x.ids_ptr(), tokens * texts);
      for (let i = 0; i < ids.length; i++) ids[i] = 1000 + (i % tokens) * 7;
      const failure = x.run(texts);
      if (failure !== 0) throw new Error(`run answers ${failure}`);
    },
  };
}

async function loadOnnx(object, dimensions) {
  const inputs = ["input_ids", "attention_mask", "token_type_ids"];
  const loading = onnxruntime.open(object.size);
  loading.write(0, new Uint8Array(await object.arrayBuffer()));
  const model = await loading.finish({ inputs, output: "embedding", dimensions });
  return {
    kind: -1,
    async run(tokens, texts) {
      const ids = Array.from({ length: tokens }, (_, i) => 1000 + i * 7);
      const encoding = { ids, mask: ids.map(() => 1), types: ids.map(() => 0) };
      for (let i = 0; i < texts; i++) await model.run(encoding);
    },
  };
}

const litert = new Map();

async function loadLiteRt(object, build) {
  const name = `./${build}.js`;
  const { open } = await import(name);
  litert.get(build)?.close();
  const model = await open(new Uint8Array(await object.arrayBuffer()));
  litert.set(build, model);
  return {
    kind: -1,
    async run(tokens, texts) {
      const ids = Int32Array.from({ length: tokens }, (_, i) => 1000 + i * 7);
      for (let i = 0; i < texts; i++) this.output = await model.run(ids);
    },
  };
}

async function load(env, model, build, dimensions) {
  const object = await env.MODELS.get(model);
  if (build.startsWith("litert")) {
    for (const key of loaded.keys()) if (key.endsWith(` ${build}`)) loaded.delete(key);
    return loadLiteRt(object, build);
  }
  return build === "onnxruntime" ? loadOnnx(object, dimensions) : loadEdge(object, build === "simd" ? simd : relaxed);
}

export default {
  async fetch(request, env) {
    const query = new URL(request.url).searchParams;
    const [model, build] = [query.get("model"), query.get("build")];
    const key = `${model} ${build}`;
    if (!loaded.has(key)) loaded.set(key, await load(env, model, build, Number(query.get("dimensions"))));
    const engine = loaded.get(key);
    for (let i = 0; i < Number(query.get("count")); i++) await engine.run(Number(query.get("tokens")), Number(query.get("texts")));
    const output = query.has("output") ? [...engine.output] : undefined;
    return Response.json({ kind: engine.kind, output });
  },
};
