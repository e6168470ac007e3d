/** The bundle: the same bytes every time, fresh or known to be stale, and nothing in it that a Worker refuses. */

import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { sha256 } from "./edge.ts";

const ROOT = join(import.meta.dirname, "..");
const run = (folder: string, ...args: string[]) => spawnSync(process.execPath, [join(folder, "build.mjs"), ...args], { encoding: "utf8" });
const dist = (folder: string, name: string) => readFileSync(join(folder, "dist", name));

/** The package's sources in another folder, with the same installed packages. */
function copy(): string {
  const folder = mkdtempSync(join(tmpdir(), "edgespec-bundle-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const name of ["src", "engine/dist", "licenses", "build.mjs", "package.json", "package-lock.json", "tsconfig.json"]) {
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  }
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  return folder;
}

let code: string;
beforeAll(() => {
  code = dist(ROOT, "worker.js").toString();
});

test("built in another folder it is the same, byte for byte", () => {
  const folder = copy();
  expect(run(folder).status).toBe(0);
  for (const name of ["worker.js", "edge-relaxed.wasm", "edge-simd.wasm", "ort-wasm-simd.wasm", "LICENSES.txt", "manifest.json"]) {
    expect(sha256(dist(folder, name)), name).toBe(sha256(dist(ROOT, name)));
  }
});

test("--check says whether it is what the sources make", () => {
  const folder = copy();
  expect(run(folder, "--check")).toMatchObject({ status: 1, stderr: expect.stringContaining("is not built") });
  run(folder);
  expect(run(folder, "--check")).toMatchObject({ status: 0, stderr: "" });
  writeFileSync(join(folder, "src/new.ts"), "export {};\n");
  expect(run(folder, "--check")).toMatchObject({ status: 1, stderr: expect.stringContaining("from other sources") });
  rmSync(join(folder, "src/new.ts"));
  writeFileSync(join(folder, "dist/worker.js"), "");
  expect(run(folder, "--check")).toMatchObject({ status: 1, stderr: expect.stringContaining("worker.js is not what was built") });
});

test("the manifest describes the files to upload", () => {
  const manifest = JSON.parse(dist(ROOT, "manifest.json").toString());
  expect(manifest.files.map(({ name, type }: { name: string; type: string }) => [name, type])).toEqual([
    ["worker.js", "application/javascript+module"],
    ["worker-edge.js", "application/javascript+module"],
    ["edge-relaxed.wasm", "application/wasm"],
    ["edge-simd.wasm", "application/wasm"],
    ["ort-wasm-simd.wasm", "application/wasm"],
  ]);
  for (const { name, sha256: digest, size } of manifest.files) {
    expect([sha256(dist(ROOT, name)), dist(ROOT, name).length]).toEqual([digest, size]);
  }
});

test("the edge engine's bundle leaves onnxruntime out", () => {
  const { bundles } = JSON.parse(dist(ROOT, "manifest.json").toString());
  expect(bundles.edge).toEqual(["worker-edge.js", "edge-relaxed.wasm", "edge-simd.wasm"]);
  const alone = dist(ROOT, "worker-edge.js").toString();
  const imports = [...alone.matchAll(/\bfrom\s*"(\.[^"]+)"/g)].map((match) => match[1]);
  expect(imports.sort()).toEqual(["./config.json", "./edge-relaxed.wasm", "./edge-simd.wasm"]);
});

test("it imports nothing but the modules that go along, and makes no code from text", () => {
  const imports = [...code.matchAll(/\bfrom\s*"(\.[^"]+)"/g)].map((match) => match[1]);
  expect(imports.sort()).toEqual(["./config.json", "./edge-relaxed.wasm", "./edge-simd.wasm", "./ort-wasm-simd.wasm"]);
  expect(code).not.toMatch(/\beval\(|\bnew Function\b|\bnew Worker\b|\brequire\("/);
  expect(code.length).toBeLessThan(256 * 1024);
});

test("it names the libraries in it and their licences", () => {
  expect(code).toMatch(/^\/\*! Contains onnxruntime-web 1\.18\.0 \(MIT\)/);
  expect(code).toContain("Copyright (c) Microsoft Corporation");
  const licenses = dist(ROOT, "LICENSES.txt").toString();
  expect(licenses).toContain("Permission is hereby granted, free of charge");
  expect(licenses).toContain("Apache License");
});
