// Times builds of the engine on one program, in turn, in one process: bench/kernels.py drives it.
//
//   node --wasm-enforce-bounds-checks kernels.mjs PROGRAM TOKENS KIND ROUNDS MODULE...
//     -> {"kind": K, "ms": [[of each round] of each module], "same": whether all give the same bytes}
//
// KIND is - for the one that the machine has. workerd runs wasm with bounds checks, which plain Node leaves to a trap
// handler: without the flag the times are others.
import { readFileSync } from "node:fs";

const WARM_MS = 600;
const BURST_MS = 40;
const [programPath, tokenText, kind, roundText, ...modules] = process.argv.slice(2);
const program = readFileSync(programPath);
const tokens = Number(tokenText);

function prepare(path) {
  const x = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(path)), {}).exports;
  x.probe();
  if (kind !== "-" && !x.set_kind(Number(kind))) throw new Error(`${path} cannot compute kind ${kind}`);
  const at = x.alloc_file(program.length);
  new Uint8Array(x.memory.buffer).set(program, at);
  if (x.load(program.length, tokens, 1) !== 0) throw new Error(`${path} refuses the program: ${x.error_detail()}`);
  const run = () => {
    new Int32Array(x.memory.buffer, x.lens_ptr(), 1)[0] = tokens;
    const ids = new Int32Array(x.memory.buffer, x.ids_ptr(), tokens);
    for (let i = 0; i < tokens; i++) ids[i] = 1000 + 7 * i;
    if (x.run(1) !== 0) throw new Error(`${path} cannot run it`);
  };
  return { x, run, ms: [] };
}

function burst(run, count) {
  const start = performance.now();
  for (let i = 0; i < count; i++) run();
  return (performance.now() - start) / count;
}

const cases = modules.map(prepare);
for (const one of cases) {
  for (const end = performance.now() + WARM_MS; performance.now() < end; ) one.run();
  one.count = Math.max(1, Math.round(BURST_MS / burst(one.run, 2)));
}
for (let round = 0; round < Number(roundText); round++) for (const one of cases) one.ms.push(burst(one.run, one.count));
const outputs = cases.map(({ x }) => Buffer.from(x.memory.buffer, x.out_ptr(), 4 * x.out_rows() * x.out_stride()));
const same = outputs.every((bytes) => bytes.equals(outputs[0]));
console.log(JSON.stringify({ kind: cases[0].x.kind(), ms: cases.map(({ ms }) => ms), same }));
