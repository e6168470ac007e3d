/** The edge engine in the Worker: the same answers as onnxruntime, streamed loading, and memory that stays. */

import { expect, onTestFinished, test } from "vitest";
import { type Edge, type EdgeOptions, fixture, keyOf, largeFixture, start } from "./edge.ts";
import { heapUsage } from "./heap.ts";

const TEXTS = ["where is my parcel", "refund please", "a", "machine learning models run at the edge ".repeat(9)];
const ALLOWANCE = 12 * 1024 * 1024;

async function serve(options: EdgeOptions): Promise<Edge> {
  const edge = await start({ miniflare: { inspectorPort: 0 }, ...options });
  onTestFinished(() => edge.miniflare.dispose());
  return edge;
}

/** Numbers anywhere in an answer, and the rest of it without them. */
function split(answer: unknown): { numbers: number[]; rest: string } {
  const numbers: number[] = [];
  const rest = JSON.stringify(answer, (_, value) => (typeof value === "number" ? (numbers.push(value), 0) : value));
  return { numbers, rest };
}

for (const name of ["classification", "multi-label", "keywords", "embedding", "raw-embedding"]) {
  test(`${name}: the answers are onnxruntime's`, async () => {
    const [ours, theirs] = await Promise.all(
      (["edge", "onnxruntime"] as const).map((engine) => serve({ shards: { world: { artifact: fixture(name, 1 << 20, engine) } } })),
    );
    const asked = await Promise.all([ours, theirs].map((edge) => (edge as Edge).infer({ texts: TEXTS })));
    const [found, expected] = asked.map(({ body }) => split(body.results));
    expect(asked.map(({ status }) => status)).toEqual([200, 200]);
    expect(found?.rest).toBe(expected?.rest);
    expected?.numbers.forEach((number, i) => expect(found?.numbers[i]).toBeCloseTo(number, 4));
  });
}

test("healthz says which arithmetic the machine has", async () => {
  const edge = await serve({ shards: { world: { artifact: fixture("classification", 16 * 1024, "edge") } } });
  const { body } = await edge.load();
  expect(body.engine.name).toBe("edge");
  expect(body.engine.kind).toMatch(/^(7|8|12) bit/);
  expect(body.tiers.r2).toBeGreaterThan(1);
});

test("a chunk that is not what its digest names is refused, and loading works once it is right", async () => {
  const artifact = fixture("classification", 4096, "edge");
  const edge = await serve({ shards: { world: { artifact } } });
  const [digest, bytes] = [...artifact.chunks][0] as [string, Uint8Array];
  const bucket = await edge.bucket();
  await bucket.put(keyOf(digest), bytes.map((byte) => byte ^ 1));
  expect((await edge.infer({ text: "refund" })).status).toBe(503);
  await bucket.put(keyOf(digest), bytes);
  expect((await edge.infer({ text: "refund" })).status).toBe(200);
});

test("what R2 had goes to KV from wasm memory", async () => {
  const artifact = fixture("classification", 4096, "edge");
  const edge = await serve({ shards: { world: { artifact } }, kv: { ttl: 600, cache_ttl: 60 } });
  await edge.load();
  const kv = await edge.kv();
  await expect
    .poll(async () => (await Promise.all([...artifact.chunks.keys()].map((digest) => kv.get(keyOf(digest), "arrayBuffer")))).every((v) => v !== null))
    .toBe(true);
  for (const [digest, bytes] of artifact.chunks) {
    expect(Buffer.from((await kv.get(keyOf(digest), "arrayBuffer")) as ArrayBuffer).equals(bytes)).toBe(true);
  }
});

test("models that take turns answer as they do alone, in the same memory", async () => {
  const [one, two] = [fixture("large", 8 << 20, "edge"), fixture("other-large", 8 << 20, "edge")];
  const edge = await serve({ shards: { world: { artifact: one }, de: { artifact: two, countries: ["DE"] } } });
  const ask = async (country: string) => (await edge.infer({ text: "refund please" }, { country })).body.result;
  const first = [await ask("US"), await ask("DE")];
  const { wasm } = (await edge.load({ country: "US" })).body.memory;
  expect([await ask("US"), await ask("DE")]).toEqual(first);
  expect((await edge.load({ country: "US" })).body.memory.wasm).toBe(wasm);
});

for (const megabytes of [20, 60]) {
  test(`${megabytes} MB of weights take at most 12 MB more while they load and after`, async () => {
    const artifact = largeFixture(megabytes);
    const model = artifact.manifest.files["model.edge"].size;
    const edge = await serve({ shards: { world: { artifact } } });
    await heapUsage(edge);
    let loaded = false;
    const loading = edge.load().finally(() => {
      loaded = true;
    });
    let outside = 0;
    while (!loaded) {
      const { usedSize, backingStorageSize } = await heapUsage(edge);
      outside = Math.max(outside, usedSize + backingStorageSize);
    }
    const { memory } = (await loading).body;
    await edge.infer({ texts: Array.from({ length: 32 }, () => "refund please ".repeat(20)) });
    expect((await edge.load()).body.memory.wasm).toBe(memory.wasm);
    console.log(`${megabytes} MB: model ${model}, wasm ${memory.wasm}, outside it ${outside} bytes at most`);
    expect(memory.wasm + outside).toBeLessThan(model + ALLOWANCE);
  });
}
