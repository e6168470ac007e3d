// Runs a program of the edge engine outside of workerd, with the Worker's own WebAssembly: for evaluations.
//
//   node engine.mjs RELAXED.wasm SIMD.wasm PROGRAM MAX_TOKENS
//     -> {"kind": "8 bit", "columns": N}
//   then, one JSON call a line on stdin and one JSON answer a line on stdout:
//   {"texts": [[id, ...], ...]} -> {"values": BASE64 of little-endian f32 rows}
//
// A call that fails answers {"error": "..."}. Batches are those of worker_runtime/src/engines/edge.ts.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const BATCH_TEXTS = 32;
const BATCH_TOKENS = 128;
const KINDS = ["7 bit", "8 bit", "8 bit, signed", "12 bit"];

const [relaxed, simd, program, most] = process.argv.slice(2);
const maxTokens = Math.max(Number(most), BATCH_TOKENS);

function newest() {
  try {
    return new WebAssembly.Instance(new WebAssembly.Module(readFileSync(relaxed)), {}).exports;
  } catch {
    return new WebAssembly.Instance(new WebAssembly.Module(readFileSync(simd)), {}).exports;
  }
}

function refused(x, code) {
  return new Error(`the engine refuses: code ${code}, detail ${x.error_detail()}`);
}

function open() {
  const x = newest();
  const kind = KINDS[x.probe()] ?? "unknown";
  const bytes = readFileSync(program);
  const start = x.alloc_file(bytes.length);
  if (start === 0) throw new Error(`there is not enough memory for ${bytes.length} bytes`);
  new Uint8Array(x.memory.buffer).set(bytes, start);
  const failure = x.load(bytes.length, maxTokens, BATCH_TEXTS);
  if (failure !== 0) throw refused(x, failure);
  return { x, kind };
}

function runBatch(x, texts, values, row) {
  new Int32Array(x.memory.buffer, x.lens_ptr(), texts.length).set(texts.map((ids) => ids.length));
  const ids = texts.flat();
  new Int32Array(x.memory.buffer, x.ids_ptr(), ids.length).set(ids);
  const failure = x.run(texts.length);
  if (failure !== 0) throw refused(x, failure);
  const columns = x.out_cols();
  texts.forEach((_, i) => {
    const at = x.out_ptr() + i * 4 * x.out_stride();
    values.set(new Float32Array(x.memory.buffer, at, columns), (row + i) * columns);
  });
}

function runAll(x, texts) {
  const values = new Float32Array(texts.length * x.out_cols());
  let start = 0;
  while (start < texts.length) {
    let end = start;
    let tokens = 0;
    while (end < texts.length && end - start < BATCH_TEXTS && (end === start || tokens + texts[end].length <= maxTokens)) {
      tokens += texts[end].length;
      end += 1;
    }
    runBatch(x, texts.slice(start, end), values, start);
    start = end;
  }
  return { values: Buffer.from(values.buffer).toString("base64") };
}

function guarded(work) {
  try {
    return work();
  } catch (error) {
    return { error: String(error.message ?? error) };
  }
}

const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
let x;
say(guarded(() => {
  const opened = open();
  x = opened.x;
  return { kind: opened.kind, columns: x.out_cols() };
}));
for await (const line of createInterface({ input: process.stdin })) say(guarded(() => runAll(x, JSON.parse(line).texts)));
