/** Every route, every method and every error that a client can cause. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Edge, fixture, start } from "./edge.ts";

type Body = NonNullable<RequestInit["body"]>;

let edge: Edge;
const artifact = fixture("classification");
const LIMITS = { texts: 3, text_bytes: 200, body_bytes: 2000 };

beforeAll(async () => {
  edge = await start({ shards: { world: { artifact } }, limits: LIMITS });
});
afterAll(() => edge.miniflare.dispose());

const post = (body: Body, headers: Record<string, string> = {}) =>
  edge.fetch("/infer", { method: "POST", body, headers, duplex: "half" } as RequestInit);

async function errorOf(response: Response) {
  expect(response.headers.get("content-type")).toBe("application/json; charset=utf-8");
  const body = (await response.json()) as { error: { code: string; message: string } };
  expect(Object.keys(body)).toEqual(["error"]);
  expect(Object.keys(body.error).sort()).toEqual(["code", "message"]);
  return { status: response.status, ...body.error };
}

describe("healthz", () => {
  test("says what would serve, without loading it, then loads it when asked", async () => {
    await using fresh = await start({ shards: { world: { artifact } } });
    const before = await (await fresh.fetch("/healthz")).json();
    const about = { status: "ok", model: "support-intent", artifact: artifact.digest.slice(0, 12), shard: "world" };
    expect(before).toEqual({ ...about, loaded: false });
    const { status, body } = await fresh.load();
    expect(status).toBe(200);
    expect(body).toMatchObject({ ...about, loaded: true, tiers: { memory: 0, kv: 0, r2: artifact.chunks.size } });
    expect(body.memory.wasm).toBeGreaterThan(0);
    expect(body.load_ms).toBeGreaterThanOrEqual(0);
    expect(await (await fresh.fetch("/healthz")).json()).toEqual({ ...about, loaded: true });
  });
});

describe("methods and paths", () => {
  test("the page is HTML without external resources", async () => {
    const response = await edge.fetch("/");
    const html = await response.text();
    expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(response.headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(html).toContain("<h1>support-intent</h1>");
    expect(html).not.toMatch(/\{\{|(?:src|href)=/);
    expect(html).toContain('fetch("infer"');
  });

  test.each(["/", "/healthz"])("HEAD %s is GET without a body", async (path) => {
    const response = await edge.fetch(path, { method: "HEAD" });
    expect(response.status).toBe(200);
    expect(await response.text()).toBe("");
  });

  test.each([
    ["/", "GET, HEAD, OPTIONS"],
    ["/healthz", "GET, HEAD, OPTIONS"],
    ["/infer", "POST, OPTIONS"],
  ])("OPTIONS %s answers with Allow: %s", async (path, allow) => {
    const response = await edge.fetch(path, { method: "OPTIONS" });
    expect([response.status, response.headers.get("allow")]).toEqual([204, allow]);
  });

  test.each([
    ["GET", "/infer", "POST, OPTIONS"],
    ["HEAD", "/infer", "POST, OPTIONS"],
    ["PUT", "/infer", "POST, OPTIONS"],
    ["POST", "/", "GET, HEAD, OPTIONS"],
    ["DELETE", "/healthz", "GET, HEAD, OPTIONS"],
  ])("%s %s is 405 with Allow", async (method, path, allow) => {
    const response = await edge.fetch(path, { method });
    expect([response.status, response.headers.get("allow")]).toEqual([405, allow]);
    if (method !== "HEAD") expect((await errorOf(response)).code).toBe("method_not_allowed");
  });

  test.each(["/nothing", "/infer/", "/Infer", "/__proto__", "/constructor"])("%s is 404", async (path) => {
    expect(await errorOf(await edge.fetch(path))).toMatchObject({ status: 404, code: "not_found" });
  });
});

describe("bodies that are not a request", () => {
  const cases: [string, Body, number, string, RegExp][] = [
    ["empty", "", 400, "invalid_json", /empty/],
    ["not JSON", "text=hello", 400, "invalid_json", /not valid JSON/],
    ["cut JSON", '{"text": "a', 400, "invalid_json", /not valid JSON/],
    ["not UTF-8", new Uint8Array([0x7b, 0x22, 0xff, 0xfe]), 400, "invalid_json", /UTF-8/],
    ["a list", '["a"]', 400, "invalid_request", /JSON object/],
    ["null", "null", 400, "invalid_request", /JSON object/],
    ["a string", '"a"', 400, "invalid_request", /JSON object/],
    ["no text", "{}", 400, "invalid_request", /text is missing/],
    ["text and texts", '{"text":"a","texts":["a"]}', 400, "invalid_request", /Both text and texts/],
    ["an unknown field", '{"text":"a","lang":"en"}', 400, "invalid_request", /"lang"/],
    ["a field of another task", '{"text":"a","top_k":3}', 400, "invalid_request", /"top_k"/],
    ["__proto__", '{"text":"a","__proto__":{"x":1}}', 400, "invalid_request", /"__proto__"/],
    ["constructor", '{"text":"a","constructor":1}', 400, "invalid_request", /"constructor"/],
    ["texts not a list", '{"texts":"a"}', 400, "invalid_request", /texts must be a list/],
    ["texts like a list", '{"texts":{"length":1,"0":"a"}}', 400, "invalid_request", /texts must be a list/],
    ["no texts", '{"texts":[]}', 400, "invalid_request", /empty list/],
    ["a number", '{"text":5}', 422, "invalid_text", /^text is not a string/],
    ["null text", '{"text":null}', 422, "invalid_text", /^text is not a string/],
    ["white space", '{"text":" \\n\\u00a0\\ufeff "}', 422, "invalid_text", /^text is empty/],
    ["one bad text of many", '{"texts":["a","b",7]}', 422, "invalid_text", /^texts\[2\] is not a string/],
    ["one empty text of many", '{"texts":["a",""]}', 422, "invalid_text", /^texts\[1\] is empty/],
    ["too many texts", '{"texts":["a","b","c","d"]}', 422, "too_many_texts", /4 items, more than 3/],
    ["a long text in bytes", JSON.stringify({ text: "é".repeat(101) }), 422, "invalid_text", /202 bytes in UTF-8, more than 200/],
    ["a body over the limit", JSON.stringify({ text: "a".repeat(2000) }), 413, "body_too_large", /2000 bytes/],
  ];
  test.each(cases)("%s", async (_, body, status, code, message) => {
    const error = await errorOf(await post(body));
    expect(error).toMatchObject({ status, code });
    expect(error.message).toMatch(message);
  });

  test("a streamed body over the limit is refused although it has no length", async () => {
    const part = new TextEncoder().encode("a".repeat(500));
    const stream = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode('{"text":"'));
        for (let i = 0; i < 10; i++) controller.enqueue(part);
        controller.close();
      },
    });
    expect(await errorOf(await post(stream))).toMatchObject({ status: 413, code: "body_too_large" });
  });

  test("a body far over the limit is not read, whatever the answer's way back", async () => {
    const answer = await post("a".repeat(100_000)).then(errorOf, () => "the connection was closed");
    if (typeof answer !== "string") expect(answer).toMatchObject({ status: 413, code: "body_too_large" });
    expect((await edge.infer({ text: "refund" })).status).toBe(200);
  });

  test("nesting as deep as the body allows is an answer, not a crash", async () => {
    const deep = `{"text":${"[".repeat(900)}${"]".repeat(900)}}`;
    expect(await errorOf(await post(deep))).toMatchObject({ status: 422, code: "invalid_text" });
  });
});

describe("bodies that are accepted", () => {
  test.each(["application/json", "text/plain", "application/x-www-form-urlencoded"])("as %s", async (type) => {
    expect((await post('{"text":"refund"}', { "content-type": type })).status).toBe(200);
  });

  test("with a byte order mark", async () => {
    expect((await post('\ufeff{"text":"refund"}')).status).toBe(200);
  });

  test("with a lone surrogate, which counts as U+FFFD", async () => {
    const lone = await (await post('{"text":"refund \\ud800 please"}')).json();
    const replaced = await (await post('{"text":"refund \\ufffd please"}')).json();
    expect(lone).toEqual(replaced);
  });

  test("of exactly the limits", async () => {
    const response = await edge.infer({ texts: ["é".repeat(100), "a", "b"] });
    expect([response.status, response.body.results.length]).toEqual([200, 3]);
  });
});
