/** Which shard answers whom. */

import { afterAll, beforeAll, expect, test } from "vitest";
import { type Edge, fixture, start } from "./edge.ts";

let edge: Edge;
const world = fixture("classification");
const other = fixture("other-classification");

beforeAll(async () => {
  edge = await start({
    shards: {
      world: { artifact: world },
      eu: { artifact: world, continents: ["EU"] },
      "de-only": { artifact: other, countries: ["DE", "AT"] },
      asia: { artifact: world, continents: ["AS"], countries: ["AU"] },
    },
    memory: 1 << 20,
  });
});
afterAll(() => edge.miniflare.dispose());

test.each([
  [{ country: "US", continent: "NA" }, "world"],
  [{ country: "FR", continent: "EU" }, "eu"],
  [{ country: "DE", continent: "EU" }, "de-only"],
  [{ country: "JP", continent: "AS" }, "asia"],
  [{ country: "AU", continent: "OC" }, "asia"],
  [{ country: "DE" }, "de-only"],
  [{ continent: "EU" }, "eu"],
  [{ country: "T1" }, "world"],
  [{}, "world"],
  [{ country: "", continent: "" }, "world"],
  [{ country: "de", continent: "eu" }, "world"],
])("%j is served by %s", async (cf, shard) => {
  const { status, body } = await edge.infer({ text: "refund" }, cf);
  expect([status, body.shard]).toEqual([200, shard]);
  expect(body.artifact).toBe((shard === "de-only" ? other : world).digest.slice(0, 12));
});

test("shards with different artifacts answer with their own", async () => {
  const ask = async (country: string) => (await edge.infer({ text: "refund please" }, { country })).body.result;
  const [us, de, again] = [await ask("US"), await ask("DE"), await ask("US")];
  expect(us).not.toEqual(de);
  expect(again).toEqual(us);
});

test("healthz names the shard that would serve the caller", async () => {
  const response = await edge.fetch("/healthz", { cf: { country: "AT" } });
  expect(await response.json()).toMatchObject({ shard: "de-only", artifact: other.digest.slice(0, 12) });
});
