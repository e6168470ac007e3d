/**
 * Token ids by the Worker's tokenizers, for the Python tests: `node encode.mjs JOB`. The job is JSON:
 * {"texts": FILE, "runs": [{"tokenizer": FILE, "lengths": [n, ...]}, ...]}; texts are JSON strings, one a line.
 * Prints per run, per length, the ids, types and truncation of every text; or {"refused": message} where it does not open.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";

const SOURCE = join(import.meta.dirname, "../../src/tokenizers/open.ts");

export async function loadTokenizers() {
  const bundle = await build({ entryPoints: [SOURCE], bundle: true, write: false, format: "esm", target: "es2024" });
  const { text } = bundle.outputFiles[0];
  return import(`data:text/javascript;base64,${Buffer.from(text).toString("base64")}`);
}

function bufferOf(path) {
  const bytes = readFileSync(path);
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
}

async function main(path) {
  const { openTokenizer } = await loadTokenizers();
  const job = JSON.parse(readFileSync(path, "utf8"));
  const texts = readFileSync(job.texts, "ascii").trimEnd().split("\n").map((line) => JSON.parse(line));
  const results = job.runs.map(({ tokenizer, lengths }) => {
    try {
      const opened = openTokenizer(bufferOf(tokenizer));
      return lengths.map((length) =>
        texts.map((text) => {
          const { ids, types, truncated } = opened.encode(text, length);
          return types.some((type) => type !== 0) ? [ids, truncated, types] : [ids, truncated];
        }),
      );
    } catch (error) {
      return { refused: `${error.name}: ${error.message}` };
    }
  });
  process.stdout.write(JSON.stringify(results));
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) await main(process.argv[2]);
