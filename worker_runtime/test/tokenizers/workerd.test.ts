/** tokenizer.bin in workerd: id by id the same as Python `tokenizers`. The whole corpus is in tests/engine. */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { build } from "esbuild";
import { Miniflare } from "miniflare";
import { expect, onTestFinished, test } from "vitest";
import { COMPATIBILITY_DATE, PYTHON } from "../edge.ts";

const HERE = import.meta.dirname;

interface Expected {
  readonly texts: readonly string[];
  readonly lengths: readonly number[];
  readonly tokenizers: readonly { name: string; file: string; ids: readonly (readonly (readonly number[])[])[] }[];
}

test("token ids of tokenizer.bin equal those of Python tokenizers", async () => {
  const printed = execFileSync(PYTHON, [join(HERE, "expected.py")], { maxBuffer: 1 << 28 });
  const { texts, lengths, tokenizers } = JSON.parse(printed.toString()) as Expected;
  const bundle = await build({
    entryPoints: [join(HERE, "worker.ts")],
    bundle: true,
    write: false,
    format: "esm",
    target: "es2024",
  });
  const contents = bundle.outputFiles[0]?.text ?? "";
  expect(contents).not.toContain("@huggingface");
  const miniflare = new Miniflare({
    modules: [{ type: "ESModule", path: "worker.js", contents }],
    compatibilityDate: COMPATIBILITY_DATE,
    host: "127.0.0.1",
    cf: false,
  });
  onTestFinished(() => miniflare.dispose());
  const url = await miniflare.ready;
  expect(texts.length).toBeGreaterThanOrEqual(500);
  for (const { name, file, ids } of tokenizers) {
    const response = await fetch(url, { method: "POST", body: JSON.stringify({ file, texts, lengths }) });
    const found = (await response.json()) as number[][][];
    const differing = lengths.flatMap((length, l) =>
      texts.flatMap((text, i) => {
        const ours = found[l]?.[i];
        const theirs = ids[l]?.[i];
        return JSON.stringify(ours) === JSON.stringify(theirs) ? [] : [{ name, text, length, ours, theirs }];
      }),
    );
    expect(differing).toEqual([]);
  }
});
