// Drives the engine for tests: one JSON request a line on stdin, one JSON answer a line on stdout.
//
//   {"module":"relaxed"|"simd","program":BASE64,"texts":[[ids]],"max_tokens":N,"max_texts":N,"kind":K?,"fill":BYTE?}
//     -> {"kind","rows","columns","values":BASE64 of f32 rows,"grown":pages,"sound":bool} or {"error","detail"} or {"trap"}
//   {..., "mutants":[[[offset, byte], ...], ...]} or {..., "cuts":[length, ...]}: the same for each changed program,
//     without values -> {"outcomes":["ok" | "error CODE" | "trap ..." | "unsound"]}
//
// Everything beyond the file is filled with `fill` before loading, the memory behind the arena stays as it was, and the
// file does too, or `sound` is false.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const GUARD_PAGES = 2;
const modules = new Map();

function moduleOf(name) {
  if (!modules.has(name)) {
    modules.set(name, new WebAssembly.Module(readFileSync(new URL(`dist/edge-${name}.wasm`, import.meta.url))));
  }
  return modules.get(name);
}

class Case {
  constructor(request, program) {
    this.request = request;
    this.program = program;
    this.x = new WebAssembly.Instance(moduleOf(request.module), {}).exports;
    this.probed = this.x.probe();
  }

  bytes() {
    return new Uint8Array(this.x.memory.buffer);
  }

  load() {
    const { x, program, request } = this;
    this.start = x.alloc_file(program.length);
    if (this.start === 0) return 100;
    x.memory.grow(GUARD_PAGES);
    const memory = this.bytes();
    memory.fill(request.fill ?? 0xa5, this.start);
    memory.set(program, this.start);
    const before = memory.length;
    const failure = x.load(program.length, request.max_tokens, request.max_texts);
    if (failure !== 0) return failure;
    if (this.bytes().length > before) this.bytes().fill(request.fill ?? 0xa5, before);
    x.memory.grow(GUARD_PAGES);
    this.bytes().fill(request.fill ?? 0xa5, x.arena_end());
    return 0;
  }

  run(texts) {
    const { x } = this;
    new Int32Array(x.memory.buffer, x.lens_ptr(), texts.length).set(texts.map((ids) => ids.length));
    new Int32Array(x.memory.buffer, x.ids_ptr(), texts.flat().length).set(texts.flat());
    this.pages = x.memory.buffer.byteLength;
    return x.run(texts.length);
  }

  sound() {
    const memory = this.bytes();
    const fill = this.request.fill ?? 0xa5;
    for (let i = this.x.arena_end(); i < memory.length; i++) if (memory[i] !== fill) return false;
    for (let i = 0; i < this.program.length; i++) if (memory[this.start + i] !== this.program[i]) return false;
    return true;
  }

  values() {
    const { x } = this;
    const [rows, columns, stride] = [x.out_rows(), x.out_cols(), x.out_stride()];
    const all = new Float32Array(x.memory.buffer, x.out_ptr(), rows * stride);
    const values = new Float32Array(rows * columns);
    for (let r = 0; r < rows; r++) values.set(all.subarray(r * stride, r * stride + columns), r * columns);
    return { rows, columns, values: Buffer.from(values.buffer).toString("base64") };
  }
}

function answer(request, program) {
  const one = new Case(request, program);
  if (request.kind != null && one.x.set_kind(request.kind) === 0) return { refused: request.kind, probed: one.probed };
  const failure = one.load() || one.run(request.texts);
  if (failure !== 0) return { error: failure, detail: one.x.error_detail() };
  const sound = one.sound();
  return { kind: one.x.kind(), probed: one.probed, ...one.values(), grown: one.bytes().length - one.pages, sound };
}

function guarded(request, program) {
  try {
    return answer(request, program);
  } catch (error) {
    return { trap: String(error) };
  }
}

function outcome(request, program) {
  const { error, trap, sound } = guarded(request, program);
  if (trap !== undefined) return `trap ${trap}`;
  if (error !== undefined) return `error ${error}`;
  return sound ? "ok" : "unsound";
}

function changed(program, edits) {
  const copy = Uint8Array.from(program);
  for (const [offset, byte] of edits) copy[offset] = byte;
  return copy;
}

function handle(request) {
  const program = Buffer.from(request.program, "base64");
  if (request.mutants) return { outcomes: request.mutants.map((edits) => outcome(request, changed(program, edits))) };
  if (request.cuts) return { outcomes: request.cuts.map((length) => outcome(request, program.subarray(0, length))) };
  return guarded(request, program);
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(handle(JSON.parse(line)))}\n`);
}
