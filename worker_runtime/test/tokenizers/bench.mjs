/**
 * Set-up, memory and time per text of tokenizer.bin and of @huggingface/tokenizers, for bench/tokenizer_tables.py:
 * `node --expose-gc bench.mjs JOB` with {"texts": [...], "rounds": n, "tokenizer": FILE (json), "tables": FILE (bin)}.
 * Prints JSON; without rounds, only the first set-up of each. Both read what a Worker has at hand: bytes. Rounds of the two take turns.
 */

import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";
import { loadTokenizers } from "./encode.mjs";

const MAX_TOKENS = 512;
const SETUPS = 15;

function held() {
  globalThis.gc();
  globalThis.gc();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** The first set-up, the median of later ones, and the bytes that one tokenizer holds, its own file included. */
function setUp(read, make) {
  const before = held();
  let kept = make(read());
  const memory = held() - before;
  const times = [];
  for (let i = 0; i < SETUPS; i++) {
    const bytes = read();
    const started = performance.now();
    kept = make(bytes);
    times.push(performance.now() - started);
  }
  times.sort((a, b) => a - b);
  return { kept, memory, later: times[SETUPS >> 1] };
}

function once(read, make) {
  const bytes = read();
  const started = performance.now();
  make(bytes);
  return performance.now() - started;
}

function round(encode, texts) {
  const started = performance.now();
  for (const text of texts) encode(text);
  return ((performance.now() - started) * 1000) / texts.length;
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

const job = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { openTokenizer } = await loadTokenizers();
const bufferOf = (path) => () => {
  const bytes = readFileSync(path);
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
};
const readTables = bufferOf(job.tables);
const readJson = bufferOf(job.tokenizer);
const makeLibrary = (buffer) => new Tokenizer(JSON.parse(new TextDecoder().decode(buffer)), {});

const result = { first: { tables: once(readTables, openTokenizer), library: once(readJson, makeLibrary) } };
if (job.rounds === 0) {
  process.stdout.write(JSON.stringify(result));
  process.exit();
}
const tables = setUp(readTables, openTokenizer);
const library = setUp(readJson, makeLibrary);
result.later = { tables: tables.later, library: library.later };
result.memory = { tables: tables.memory, library: library.memory };

const ours = (text) => tables.kept.encode(text, MAX_TOKENS);
const theirs = (text) => library.kept.encode(text);
result.tokens = job.texts.reduce((sum, text) => sum + ours(text).count, 0) / job.texts.length;
result.same = job.texts.filter((text) => String(ours(text).ids) === String(theirs(text).ids)).length;
for (let i = 0; i < 3; i++) for (const encode of [ours, theirs]) round(encode, job.texts);
const rounds = Array.from({ length: job.rounds }, () => [round(ours, job.texts), round(theirs, job.texts)]);
result.text = {
  tables: Math.min(...rounds.map(([a]) => a)),
  library: Math.min(...rounds.map(([, b]) => b)),
  ratio: median(rounds.map(([a, b]) => b / a)),
};
process.stdout.write(JSON.stringify(result));
