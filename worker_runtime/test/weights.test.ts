/** Where weights come from, what happens when they are wrong, and that nothing is read twice. */

import { describe, expect, onTestFinished, test } from "vitest";
import { breakTiers, counting, countsOf } from "./counting.ts";
import { type Artifact, type Edge, type EdgeOptions, fixture, keyOf, start } from "./edge.ts";

const KV = { ttl: 3600, cache_ttl: 60 };
const artifact = fixture("classification", 2 * 1024);
const model = artifact.chunksOf("model.onnx");
const total = artifact.chunks.size;

async function serve(options: Partial<EdgeOptions> = {}): Promise<Edge> {
  const edge = await start(counting({ shards: { world: { artifact } }, ...options }));
  onTestFinished(() => edge.miniflare.dispose());
  return edge;
}

const bytesOf = (digest: string, of: Artifact = artifact): Uint8Array => of.chunks.get(digest) as Uint8Array;

/** KV's keys once it has `count` of them; writes go on after the answer. */
async function kvKeys(edge: Edge, count: number) {
  const kv = await edge.kv();
  for (let tries = 0; tries < 100; tries++) {
    const { keys } = await kv.list();
    if (keys.length === count) return keys;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`KV never had ${count} keys`);
}

test("the fixture has several chunks of model and tokenizer", () => {
  expect(model.length).toBeGreaterThan(3);
  expect(artifact.chunksOf("tokenizer.json").length).toBeGreaterThan(1);
});

describe("without KV", () => {
  test("every chunk comes from R2 once, however many ask at the same time", async () => {
    const edge = await serve();
    const answers = await Promise.all(Array.from({ length: 20 }, () => edge.infer({ text: "refund" })));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
    const { r2, widest } = await countsOf(edge);
    expect(r2).toBe(total);
    expect(widest).toBeLessThanOrEqual(6);
    await edge.infer({ text: "again" });
    expect((await countsOf(edge)).r2).toBe(total);
  });

  test("a client that goes away does not take the load along that others wait for", async () => {
    const edge = await serve();
    const gone = new AbortController();
    const first = edge.fetch("/infer", { method: "POST", body: '{"text":"refund"}', signal: gone.signal }).catch(() => "aborted");
    const others = Array.from({ length: 3 }, () => edge.infer({ text: "refund" }));
    setTimeout(() => gone.abort(), 5);
    await first;
    expect((await Promise.all(others)).map(({ status }) => status)).toEqual([200, 200, 200]);
    expect((await edge.infer({ text: "refund" })).status).toBe(200);
  });

  test("a missing chunk is 503 with Retry-After for all who wait, and forgotten once it is there", async () => {
    const edge = await serve();
    const bucket = await edge.bucket();
    const digest = model[1] as string;
    await bucket.delete(keyOf(digest));
    const failed = await Promise.all(Array.from({ length: 5 }, () => edge.infer({ text: "refund" })));
    for (const { status, body, headers } of failed) {
      expect([status, body.error.code, headers.get("retry-after")]).toEqual([503, "weights_unavailable", "5"]);
      expect(body.error.message).toContain(digest.slice(0, 12));
      expect(body.error.message).toContain("is not in R2");
    }
    expect((await edge.load()).status).toBe(503);
    expect(await (await edge.fetch("/healthz")).json()).toMatchObject({ status: "ok", loaded: false });
    await bucket.put(keyOf(digest), bytesOf(digest));
    expect((await edge.infer({ text: "refund" })).status).toBe(200);
  });

  test.each([
    ["other bytes", (bytes: Uint8Array) => bytes.map((byte, i) => (i === 7 ? byte ^ 1 : byte))],
    ["a byte less", (bytes: Uint8Array) => bytes.subarray(0, bytes.length - 1)],
    ["a byte more", (bytes: Uint8Array) => Uint8Array.of(...bytes, 0)],
    ["nothing", () => new Uint8Array(0)],
  ])("a chunk with %s is never used", async (_, change) => {
    const edge = await serve();
    const digest = model.at(-1) as string;
    await (await edge.bucket()).put(keyOf(digest), change(bytesOf(digest)));
    const { status, body } = await edge.infer({ text: "refund" });
    expect([status, body.error.code]).toEqual([503, "weights_unavailable"]);
    expect(body.error.message).toMatch(/does not have the bytes that its digest names/);
  });

  test("R2 that fails is 503, and the next request tries again", async () => {
    const edge = await serve();
    await breakTiers(edge, "r2");
    const { status, body } = await edge.infer({ text: "refund" });
    expect([status, body.error.code]).toEqual([503, "weights_unavailable"]);
    expect(body.error.message).not.toMatch(/is broken|Error|at /);
    await breakTiers(edge);
    expect((await edge.infer({ text: "refund" })).status).toBe(200);
  });
});

describe("with KV", () => {
  test("what it lacks is read from R2 and written back with the declared time to live", async () => {
    const edge = await serve({ kv: KV });
    expect((await edge.load()).body.tiers).toEqual({ memory: 0, kv: 0, r2: total });
    const keys = await kvKeys(edge, total);
    expect(keys.map(({ name }) => name).sort()).toEqual([...artifact.chunks.keys()].map(keyOf).sort());
    for (const { expiration } of keys) {
      expect(Math.abs((expiration ?? 0) - Date.now() / 1000 - KV.ttl)).toBeLessThan(60);
    }
    const kv = await edge.kv();
    for (const { name } of keys) {
      expect(Buffer.from((await kv.get(name, "arrayBuffer")) ?? new ArrayBuffer(0))).toEqual(
        Buffer.from(bytesOf(name.replace("artifacts/", ""))),
      );
    }
  });

  test("pinned chunks are read from KV and left as they are; R2 gives the rest", async () => {
    const edge = await serve({ kv: KV });
    const kv = await edge.kv();
    const pinned = artifact.chunksOf("tokenizer.json");
    for (const digest of pinned) await kv.put(keyOf(digest), bytesOf(digest));
    expect((await edge.load()).body.tiers).toEqual({ memory: 0, kv: pinned.length, r2: total - pinned.length });
    const keys = await kvKeys(edge, total);
    const lasting = keys.filter(({ expiration }) => expiration === undefined).map(({ name }) => name);
    expect(lasting.sort()).toEqual(pinned.map(keyOf).sort());
    expect((await countsOf(edge)).put).toBe(total - pinned.length);
  });

  test("R2 is not asked when KV has everything", async () => {
    const edge = await serve({ kv: KV });
    const kv = await edge.kv();
    for (const [digest, bytes] of artifact.chunks) await kv.put(keyOf(digest), bytes);
    await breakTiers(edge, "r2");
    expect((await edge.load()).body.tiers).toEqual({ memory: 0, kv: total, r2: 0 });
    expect(await countsOf(edge)).toMatchObject({ r2: 0, kv: total, put: 0 });
  });

  test.each([
    ["other bytes", (bytes: Uint8Array) => bytes.map((byte) => byte ^ 255)],
    ["a byte more", (bytes: Uint8Array) => Uint8Array.of(...bytes, 0)],
    ["half of it", (bytes: Uint8Array) => bytes.subarray(0, bytes.length / 2)],
  ])("a chunk with %s there is read from R2 and mended", async (_, change) => {
    const edge = await serve({ kv: KV });
    const kv = await edge.kv();
    const digest = model[0] as string;
    for (const [key, bytes] of artifact.chunks) await kv.put(keyOf(key), bytes);
    await kv.put(keyOf(digest), change(bytesOf(digest)));
    expect((await edge.load()).body.tiers).toEqual({ memory: 0, kv: total - 1, r2: 1 });
    await expect
      .poll(async () => Buffer.from((await kv.get(keyOf(digest), "arrayBuffer")) ?? new ArrayBuffer(0)))
      .toEqual(Buffer.from(bytesOf(digest)));
  });

  test.each([["reads", "kv"] as const, ["writes", "put"] as const])("KV whose %s fail costs nothing but speed", async (_, tier) => {
    const edge = await serve({ kv: KV });
    await breakTiers(edge, tier);
    expect((await edge.infer({ text: "refund" })).status).toBe(200);
  });

  test("a load that failed leaves in KV what it did read, for the next one", async () => {
    const edge = await serve({ kv: KV });
    const bucket = await edge.bucket();
    const digest = model.at(-1) as string;
    await bucket.delete(keyOf(digest));
    expect((await edge.load()).status).toBe(503);
    await expect.poll(async () => (await countsOf(edge)).put).toBeGreaterThan(0);
    await bucket.put(keyOf(digest), bytesOf(digest));
    const { tiers } = (await edge.load()).body;
    expect(tiers.kv).toBeGreaterThan(0);
    expect(tiers.kv + tiers.r2).toBe(total);
  });
});

describe("a start that must not succeed", () => {
  test.each([
    ["another format", (config: { format: string }) => void (config.format = "edgespec.worker-config/v2")],
    ["a default shard that is not there", (config: { default_shard: string }) => void (config.default_shard = "moon")],
    ["an artifact that is not there", (config: { artifacts: object }) => void (config.artifacts = {})],
  ])("%s is refused with the path of the value", async (_, change) => {
    await expect(start({ shards: { world: { artifact } }, change, miniflare: { handleRuntimeStdio: () => undefined } }))
      .rejects.toThrow();
  });
});
