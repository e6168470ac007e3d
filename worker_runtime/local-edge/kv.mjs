// Workers KV: namespaces and their keys, with the limits of the real one.

import { randomBytes } from "node:crypto";
import { ApiError, page, success } from "./envelope.mjs";

const VALUE_BYTES = 25 * 1024 * 1024;
const KEY_BYTES = 512;
const METADATA_BYTES = 1024;
const MIN_TTL = 60;
const BULK_PAIRS = 10_000;
const BULK_BYTES = 100 * 1000 * 1000;
const BULK_GET_KEYS = 100;
const AT_ONCE = 8;

export class Kv {
  /**
   * @param {import("./store.mjs").Store} store
   * @param {import("./runtime.mjs").Runtime} runtime
   */
  constructor(store, runtime) {
    this.store = store;
    this.runtime = runtime;
  }

  routes() {
    const all = "/storage/kv/namespaces";
    const at = `${all}/:id`;
    return [
      ["GET", all, (r) => this.list(r)],
      ["POST", all, (r) => this.create(r)],
      ["GET", at, (r) => success(describe(this.namespace(r)))],
      ["PUT", at, (r) => this.rename(r)],
      ["DELETE", at, (r) => this.remove(r)],
      ["GET", `${at}/keys`, (r) => this.keys(r)],
      ["PUT", `${at}/bulk`, (r) => this.bulkPut(r)],
      ["DELETE", `${at}/bulk`, (r) => this.bulkDelete(r)],
      ["POST", `${at}/bulk/get`, (r) => this.bulkGet(r)],
      ["POST", `${at}/bulk/delete`, (r) => this.bulkDelete(r)],
      ["GET", `${at}/values/:key`, (r) => this.get(r)],
      ["PUT", `${at}/values/:key`, (r) => this.put(r)],
      ["DELETE", `${at}/values/:key`, (r) => this.delete(r)],
      ["GET", `${at}/metadata/:key`, (r) => this.metadata(r)],
    ];
  }

  namespace({ params }) {
    const found = Object.hasOwn(this.store.state.namespaces, params.id) ? this.store.state.namespaces[params.id] : undefined;
    if (!found) throw new ApiError(404, 10013, "namespace not found");
    return found;
  }

  list({ query }) {
    const order = query.get("order") === "id" ? "id" : "title";
    const items = Object.values(this.store.state.namespaces).map(describe).sort((a, b) => (a[order] < b[order] ? -1 : 1));
    if (query.get("direction") === "desc") items.reverse();
    const cut = page(items, query, { perPage: 20, most: 1000 });
    return success(cut.items, { info: cut.info });
  }

  async create(request) {
    const { title } = await request.json();
    this.checkTitle(title);
    const id = randomBytes(16).toString("hex");
    this.store.state.namespaces[id] = { id, title, slot: this.runtime.allocate("kv") };
    this.store.save();
    await this.runtime.provide();
    return success(describe(this.store.state.namespaces[id]));
  }

  async rename(request) {
    const { title } = await request.json();
    const namespace = this.namespace(request);
    if (title !== namespace.title) this.checkTitle(title);
    namespace.title = title;
    this.store.save();
    return success(describe(namespace));
  }

  checkTitle(title) {
    if (typeof title !== "string" || title === "" || Buffer.byteLength(title) > 512) {
      throw new ApiError(400, 10019, "A namespace needs a title of 1 to 512 bytes.");
    }
    if (Object.values(this.store.state.namespaces).some((n) => n.title === title)) {
      throw new ApiError(400, 10014, "a namespace with this account ID and title already exists");
    }
  }

  async remove(request) {
    const { id, slot } = this.namespace(request);
    delete this.store.state.namespaces[id];
    this.store.save();
    await this.runtime.do({ op: "kv.clear", slot });
    this.runtime.discard("kv", slot);
    return success(null);
  }

  async keys(request) {
    const { slot } = this.namespace(request);
    const { query } = request;
    const limit = Number(query.get("limit") ?? 1000);
    if (!Number.isInteger(limit) || limit < 1 || limit > 1000) throw new ApiError(400, 10011, "limit must be a number from 1 to 1000");
    const options = { prefix: query.get("prefix") ?? "", limit, cursor: query.get("cursor") || undefined };
    const answer = await this.runtime.call({ op: "kv.list", slot, options });
    const { keys, cursor } = JSON.parse(Buffer.concat(await answer.body.toArray()).toString("utf8"));
    return success(keys, { info: { count: keys.length, cursor: cursor ?? "" } });
  }

  async get(request) {
    const { slot } = this.namespace(request);
    const answer = await this.runtime.call({ op: "kv.get", slot, key: checkKey(request.params.key) });
    if (answer.missing) {
      answer.body.resume();
      throw new ApiError(404, 10009, "get: 'key not found'");
    }
    const headers = { "content-type": "application/octet-stream" };
    if (answer.data.expiration) headers.expiration = String(answer.data.expiration);
    return { status: 200, headers, body: answer.body };
  }

  async metadata(request) {
    const { slot } = this.namespace(request);
    const found = await this.runtime.do({ op: "kv.get", slot, key: checkKey(request.params.key) });
    if (!found) throw new ApiError(404, 10009, "get: 'key not found'");
    return success(found.metadata ?? null);
  }

  async put(request) {
    const { slot } = this.namespace(request);
    const key = checkKey(request.params.key);
    const options = checkOptions({
      expiration: number(request.query.get("expiration")),
      expiration_ttl: number(request.query.get("expiration_ttl")),
    });
    let value = await request.bytes(VALUE_BYTES + 64 * 1024);
    const type = request.headers["content-type"] ?? "";
    if (type.startsWith("multipart/form-data")) {
      const form = await new Response(value, { headers: { "content-type": type } }).formData();
      if (form.get("value") === null) throw new ApiError(400, 10012, 'The form has no part named "value".');
      value = Buffer.from(await new Blob([form.get("value")]).arrayBuffer());
      const metadata = form.get("metadata");
      if (metadata) options.metadata = parseMetadata(typeof metadata === "string" ? metadata : await metadata.text());
    }
    checkValue(value);
    await this.runtime.do({ op: "kv.put", slot, key, options }, { body: value });
    return success(null);
  }

  async delete(request) {
    const { slot } = this.namespace(request);
    await this.runtime.do({ op: "kv.delete", slot, keys: [checkKey(request.params.key)] });
    return success(null);
  }

  async bulkPut(request) {
    const { slot } = this.namespace(request);
    const pairs = await request.json(BULK_BYTES);
    checkList(pairs, BULK_PAIRS);
    const puts = pairs.map((pair) => ({ key: checkKey(pair.key), options: checkOptions(pair), value: decode(pair) }));
    const unsuccessful = [];
    await each(puts, AT_ONCE, async ({ key, options, value }) => {
      try {
        await this.runtime.do({ op: "kv.put", slot, key, options }, { body: value });
      } catch {
        unsuccessful.push(key);
      }
    });
    return success({ successful_key_count: puts.length - unsuccessful.length, unsuccessful_keys: unsuccessful });
  }

  async bulkDelete(request) {
    const { slot } = this.namespace(request);
    const keys = await request.json(BULK_BYTES);
    checkList(keys, BULK_PAIRS);
    for (const key of keys) checkKey(key);
    const unsuccessful = [];
    const batches = Array.from({ length: Math.ceil(keys.length / 100) }, (_, n) => keys.slice(n * 100, n * 100 + 100));
    await each(batches, 1, async (batch) => {
      try {
        await this.runtime.do({ op: "kv.delete", slot, keys: batch });
      } catch {
        unsuccessful.push(...batch);
      }
    });
    return success({ successful_key_count: keys.length - unsuccessful.length, unsuccessful_keys: unsuccessful });
  }

  async bulkGet(request) {
    const { slot } = this.namespace(request);
    const { keys, type = "text", withMetadata = false } = await request.json();
    checkList(keys, BULK_GET_KEYS);
    if (!["text", "json"].includes(type)) throw new ApiError(400, 10012, 'type is "text" or "json"');
    const values = {};
    await each(keys, AT_ONCE, async (key) => {
      const answer = await this.runtime.call({ op: "kv.get", slot, key: checkKey(key) });
      const text = Buffer.concat(await answer.body.toArray()).toString("utf8");
      if (answer.missing) values[key] = null;
      else {
        const value = type === "json" ? JSON.parse(text) : text;
        values[key] = withMetadata ? { value, metadata: answer.data.metadata ?? null, expiration: answer.data.expiration } : value;
      }
    });
    return success({ values });
  }
}

function describe({ id, title }) {
  return { id, title, supports_url_encoding: true };
}

function checkKey(key) {
  if (typeof key !== "string" || key === "" || key === "." || key === ".." || Buffer.byteLength(key) > KEY_BYTES) {
    throw new ApiError(400, 10012, `A key is 1 to ${KEY_BYTES} bytes and neither "." nor "..".`);
  }
  return key;
}

function checkValue(value) {
  if (value.length > VALUE_BYTES) throw new ApiError(413, 10024, `The value is ${value.length} bytes; the limit is 25 MiB.`);
}

function checkList(list, most) {
  if (!Array.isArray(list)) throw new ApiError(400, 10012, "The body must be a JSON list.");
  if (list.length === 0 || list.length > most) throw new ApiError(400, 10012, `${list.length} entries; one call takes 1 to ${most}.`);
}

function checkOptions({ expiration, expiration_ttl, metadata }) {
  const options = {};
  if (expiration_ttl !== undefined && expiration_ttl !== null) {
    if (!Number.isInteger(expiration_ttl) || expiration_ttl < MIN_TTL) {
      throw new ApiError(400, 10022, `Invalid expiration_ttl of ${expiration_ttl}. Expiration TTL must be at least ${MIN_TTL}.`);
    }
    options.expirationTtl = expiration_ttl;
  } else if (expiration !== undefined && expiration !== null) {
    if (!Number.isInteger(expiration) || expiration < Date.now() / 1000 + MIN_TTL - 1) {
      throw new ApiError(400, 10022, `Invalid expiration of ${expiration}. It must be at least ${MIN_TTL} seconds in the future.`);
    }
    options.expiration = expiration;
  }
  if (metadata !== undefined && metadata !== null) options.metadata = parseMetadata(JSON.stringify(metadata));
  return options;
}

function parseMetadata(text) {
  if (Buffer.byteLength(text) > METADATA_BYTES) throw new ApiError(413, 10025, `The metadata is over ${METADATA_BYTES} bytes.`);
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError(400, 10012, "The metadata is not JSON.");
  }
}

function decode({ key, value, base64 = false }) {
  if (typeof value !== "string") throw new ApiError(400, 10012, `The value of "${key}" must be a string.`);
  if (base64 && !/^[A-Za-z0-9+/]*={0,2}$/.test(value)) throw new ApiError(400, 10012, `The value of "${key}" is not base64.`);
  const bytes = Buffer.from(value, base64 ? "base64" : "utf8");
  checkValue(bytes);
  return bytes;
}

function number(text) {
  return text === null ? undefined : Number(text);
}

/** Runs `work` on every item, at most `width` at a time. */
export async function each(items, width, work) {
  let next = 0;
  const lane = async () => {
    while (next < items.length) await work(items[next++]);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, lane));
}
