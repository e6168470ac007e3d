/** An artifact with tokenizer.bin: the Worker takes it, needs no tokenizer.json, and answers the same. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { type Artifact, fixture, PYTHON, sha256, start } from "../edge.ts";

const COMPILE = `
import json, sys
from edgespec.engine.tokenizer_tables import compile_tokenizer
open(sys.argv[2], "wb").write(compile_tokenizer(json.load(open(sys.argv[1], encoding="utf-8"))).data)
`;
const TEXTS = ["Where is my PARCEL?", "machine learning at the edge", "hello ".repeat(3000), "\u0001", "caf\u00e9 \u597d \ud800"];

/** The artifact with tables in place of its two tokenizer files. */
function withTables(artifact: Artifact): Artifact {
  const folder = mkdtempSync(join(tmpdir(), "edgespec-tables-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const [json, tables] = [join(folder, "tokenizer.json"), join(folder, "tokenizer.bin")];
  writeFileSync(json, Buffer.concat(artifact.chunksOf("tokenizer.json").map((digest) => artifact.chunks.get(digest) as Uint8Array)));
  execFileSync(PYTHON, ["-c", COMPILE, json, tables], { cwd: join(import.meta.dirname, "../../..") });
  const bytes = readFileSync(tables);
  const digest = sha256(bytes);
  const { "tokenizer.json": _, "tokenizer_config.json": __, ...files } = artifact.manifest.files;
  files["tokenizer.bin"] = { sha256: digest, size: bytes.length, chunks: [{ sha256: digest, size: bytes.length }] };
  const manifest = { ...artifact.manifest, files };
  return { ...artifact, digest: sha256(JSON.stringify(manifest)), manifest, chunks: new Map([...artifact.chunks, [digest, bytes]]) };
}

test("tables in place of tokenizer.json give the same answers", async () => {
  const answers = [];
  for (const artifact of [fixture("classification"), withTables(fixture("classification"))]) {
    const edge = await start({ shards: { world: { artifact } }, memory: 1 << 24 });
    onTestFinished(() => edge.miniflare.dispose());
    const { status, body } = await edge.infer({ texts: TEXTS });
    expect(status).toBe(200);
    expect((await edge.infer({ texts: TEXTS })).body.results).toEqual(body.results);
    answers.push(body.results);
  }
  expect(answers[1]).toEqual(answers[0]);
});
