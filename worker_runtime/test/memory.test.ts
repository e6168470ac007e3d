/** What an isolate holds: the memory tier, several models, and bytes that are freed. */

import { expect, onTestFinished, test } from "vitest";
import { type Edge, type EdgeOptions, fixture, pack, start } from "./edge.ts";
import { heapUsage } from "./heap.ts";

const world = fixture("classification");
const other = fixture("other-classification");
const LIMIT = 128 * 1024 * 1024;
const sizeOf = ({ chunks }: typeof world) => [...chunks.values()].reduce((sum, bytes) => sum + bytes.length, 0);

async function serve(options: Partial<EdgeOptions>): Promise<Edge> {
  const edge = await start({
    shards: { world: { artifact: world }, de: { artifact: other, countries: ["DE"] } },
    miniflare: { inspectorPort: 0 },
    ...options,
  });
  onTestFinished(() => edge.miniflare.dispose());
  return edge;
}

test("chunks that two artifacts share are read once and kept under the ceiling", async () => {
  const ceiling = 1 << 20;
  const edge = await serve({ memory: ceiling });
  const first = (await edge.load()).body;
  const second = (await edge.load({ country: "DE" })).body;
  const shared = [...world.chunks.keys()].filter((digest) => other.chunks.has(digest)).length;
  expect(shared).toBeGreaterThan(0);
  expect(first.tiers).toEqual({ memory: 0, kv: 0, r2: world.chunks.size });
  expect(second.tiers).toEqual({ memory: shared, kv: 0, r2: other.chunks.size - shared });
  expect(first.memory).toMatchObject({ weights: sizeOf(world), ceiling });
  expect(second.memory.weights).toBeGreaterThan(sizeOf(world));
  expect(second.memory.weights).toBeLessThanOrEqual(ceiling);
});

test("a ceiling of nothing keeps nothing", async () => {
  const edge = await serve({ memory: 0 });
  expect((await edge.load()).body.memory.weights).toBe(0);
  expect((await edge.load({ country: "DE" })).body.tiers.memory).toBe(0);
});

test("a ceiling that fits one file drops the one not used for longest", async () => {
  const ceiling = 25 * 1024;
  const edge = await serve({ memory: ceiling });
  for (const country of ["US", "DE"]) {
    const { weights } = (await edge.load({ country })).body.memory;
    expect(weights).toBeGreaterThan(0);
    expect(weights).toBeLessThanOrEqual(ceiling);
  }
});

test("one artifact, once loaded, leaves no second copy of itself, and the isolate stays under 128 MB", async () => {
  const edge = await serve({ shards: { world: { artifact: world } }, memory: 64 << 20 });
  const before = await heapUsage(edge);
  const { memory } = (await edge.load()).body;
  await edge.infer({ texts: ["refund", "where is my parcel"] });
  const after = await heapUsage(edge);
  const total = memory.wasm + after.usedSize + after.backingStorageSize;
  console.log(`isolate: wasm ${memory.wasm}, heap ${after.usedSize}, buffers ${after.backingStorageSize} bytes`);
  expect(memory.weights).toBe(0);
  expect(after.backingStorageSize - before.backingStorageSize).toBeLessThan(sizeOf(world));
  expect(total).toBeLessThan(LIMIT);
});

test("models too large to stay together take turns in the same wasm memory", async () => {
  const [one, two] = [fixture("large", 8 << 20), fixture("other-large", 8 << 20)];
  const edge = await serve({ shards: { world: { artifact: one }, de: { artifact: two, countries: ["DE"] } }, memory: 64 << 20 });
  const isLoaded = async (country: string) => ((await (await edge.fetch("/healthz", { cf: { country } })).json()) as { loaded: boolean }).loaded;
  const ask = async (country: string) => (await edge.infer({ text: "refund please" }, { country })).body.result;
  const first = await ask("US");
  const { wasm } = (await edge.load({ country: "DE" })).body.memory;
  expect([await isLoaded("US"), await isLoaded("DE")]).toEqual([false, true]);
  const back = (await edge.load({ country: "US" })).body;
  expect(back.tiers.memory).toBe(one.chunks.size);
  expect(back.memory.wasm).toBeLessThanOrEqual(wasm + (1 << 20));
  expect(await ask("US")).toEqual(first);
});

test("requests for models that oust each other are all answered", async () => {
  const [one, two] = [fixture("large", 8 << 20), fixture("other-large", 8 << 20)];
  const edge = await serve({ shards: { world: { artifact: one }, de: { artifact: two, countries: ["DE"] } } });
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, i) => edge.infer({ texts: ["refund", "parcel"] }, { country: i % 2 === 0 ? "US" : "DE" })),
  );
  expect(answers.map(({ status, body }) => [status, body.shard])).toEqual(
    answers.map((_, i) => [200, i % 2 === 0 ? "world" : "de"]),
  );
});

const REAL = process.env["EDGESPEC_TEST_MODEL"];

test.runIf(REAL)("a real model, in the folder EDGESPEC_TEST_MODEL, stays under 128 MB", async () => {
  const inputs = ["input_ids", "attention_mask", "token_type_ids"];
  const model = { inputs, output: "embedding", dimensions: 384, quantization: "int8" };
  const artifact = pack(REAL as string, { task: { type: "embedding", max_tokens: 128, normalize: true }, model });
  const edge = await serve({ shards: { world: { artifact } }, memory: 64 << 20 });
  const { memory, load_ms } = (await edge.load()).body;
  await edge.infer({ texts: ["short", "word ".repeat(30), "word ".repeat(500)] });
  const grown = (await edge.load()).body.memory.wasm;
  const heap = await heapUsage(edge);
  console.log(`real model: wasm ${grown}, heap ${heap.usedSize}, buffers ${heap.backingStorageSize} bytes, loaded in ${load_ms} ms`);
  expect(grown).toBe(memory.wasm);
  // While it loads, the model's bytes are there a second time.
  expect(grown + heap.usedSize + heap.backingStorageSize + sizeOf(artifact)).toBeLessThan(LIMIT);
});
