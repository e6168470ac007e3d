/** Id by id the same as Python `tokenizers`, with the real MiniLM tokenizer, in workerd. */

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { Miniflare } from "miniflare";
import { expect, onTestFinished, test } from "vitest";
import { COMPATIBILITY_DATE, PYTHON } from "../edge.ts";

const HERE = import.meta.dirname;

interface Expected {
  readonly files: readonly [string, string];
  readonly ids: Readonly<Record<string, readonly (readonly number[])[]>>;
}

test("token ids equal those of Python tokenizers on every text of the corpus", async () => {
  const corpus = join(HERE, "corpus.jsonl");
  const texts = readFileSync(corpus, "ascii").trimEnd().split("\n").map((line) => JSON.parse(line) as string);
  const printed = execFileSync(PYTHON, [join(HERE, "encode.py"), corpus], { maxBuffer: 1 << 28 });
  const expected = JSON.parse(printed.toString()) as Expected;
  const lengths = Object.keys(expected.ids).map(Number);
  const bundle = await build({
    entryPoints: [join(HERE, "worker.ts")],
    bundle: true,
    write: false,
    format: "esm",
    target: "es2024",
    mainFields: ["module", "main"],
  });
  const miniflare = new Miniflare({
    modules: [{ type: "ESModule", path: "worker.js", contents: bundle.outputFiles[0]?.text ?? "" }],
    compatibilityDate: COMPATIBILITY_DATE,
    host: "127.0.0.1",
    cf: false,
  });
  onTestFinished(() => miniflare.dispose());
  const url = await miniflare.ready;
  const response = await fetch(url, { method: "POST", body: JSON.stringify({ files: expected.files, texts, lengths }) });
  const found = (await response.json()) as number[][][];
  const differing = lengths.flatMap((length, l) =>
    texts.flatMap((text, i) => {
      const ours = found[l]?.[i];
      const theirs = expected.ids[length]?.[i];
      return JSON.stringify(ours) === JSON.stringify(theirs) ? [] : [{ text, length, ours, theirs }];
    }),
  );
  expect(texts.length).toBeGreaterThanOrEqual(300);
  expect(differing).toEqual([]);
});
