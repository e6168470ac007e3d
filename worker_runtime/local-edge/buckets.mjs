// R2 buckets through the v4 API. Names are separate in every jurisdiction.

import { ApiError, success } from "./envelope.mjs";

export const JURISDICTIONS = ["default", "eu", "us", "fedramp"];
const LOCATIONS = ["WNAM", "ENAM", "WEUR", "EEUR", "APAC", "OC"];
const HOME = { default: "WNAM", eu: "WEUR", us: "ENAM", fedramp: "ENAM" };
const OBJECT_BYTES = 300 * 1024 * 1024;
const NAME = /^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$/;

export class Buckets {
  /**
   * @param {import("./store.mjs").Store} store
   * @param {import("./runtime.mjs").Runtime} runtime
   */
  constructor(store, runtime) {
    this.store = store;
    this.runtime = runtime;
  }

  routes() {
    return [
      ["GET", "/r2/buckets", (r) => this.list(r)],
      ["POST", "/r2/buckets", (r) => this.create(r)],
      ["GET", "/r2/buckets/:name", (r) => success(describe(this.bucket(r)))],
      ["DELETE", "/r2/buckets/:name", (r) => this.remove(r)],
      ["GET", "/r2/buckets/:name/objects/:key", (r) => this.getObject(r)],
      ["PUT", "/r2/buckets/:name/objects/:key", (r) => this.putObject(r)],
      ["DELETE", "/r2/buckets/:name/objects/:key", (r) => this.deleteObject(r)],
    ];
  }

  bucket(request) {
    const found = this.find(jurisdictionOf(request), request.params.name);
    if (!found) throw new ApiError(404, 10006, "The specified bucket does not exist.");
    return found;
  }

  find(jurisdiction, name) {
    const key = `${jurisdiction}/${name}`;
    return Object.hasOwn(this.store.state.buckets, key) ? this.store.state.buckets[key] : undefined;
  }

  list(request) {
    const { query } = request;
    const jurisdiction = jurisdictionOf(request);
    const size = Math.min(Number(query.get("per_page") ?? 20) || 20, 1000);
    const after = query.get("cursor") ? Buffer.from(query.get("cursor"), "base64url").toString() : query.get("start_after") ?? "";
    const descending = query.get("direction") === "desc";
    const names = Object.values(this.store.state.buckets)
      .filter((b) => b.jurisdiction === jurisdiction && b.name.includes(query.get("name_contains") ?? ""))
      .sort((a, b) => (a.name < b.name ? -1 : 1) * (descending ? -1 : 1))
      .filter((b) => !after || (descending ? b.name < after : b.name > after));
    const cut = names.slice(0, size);
    const more = names.length > size ? { cursor: Buffer.from(cut.at(-1).name).toString("base64url") } : {};
    return success({ buckets: cut.map(describe) }, { info: { per_page: size, ...more } });
  }

  async create(request) {
    const { name, locationHint, storageClass = "Standard" } = await request.json();
    const jurisdiction = jurisdictionOf(request);
    if (typeof name !== "string" || !NAME.test(name)) {
      throw new ApiError(400, 10005, "The specified bucket name is not valid: 3 to 63 of a-z, 0-9 and -, no - at the ends.");
    }
    const location = String(locationHint ?? HOME[jurisdiction]).toUpperCase();
    if (!LOCATIONS.includes(location)) throw new ApiError(400, 10001, `"${locationHint}" is no location hint.`);
    if (!["Standard", "InfrequentAccess"].includes(storageClass)) throw new ApiError(400, 10062, `"${storageClass}" is no storage class.`);
    if (this.find(jurisdiction, name)) throw new ApiError(409, 10004, "The bucket you tried to create already exists, and you own it.");
    const bucket = {
      name, jurisdiction, location, storage_class: storageClass,
      slot: this.runtime.allocate("r2"), creation_date: new Date().toISOString(),
    };
    this.store.state.buckets[`${jurisdiction}/${name}`] = bucket;
    this.store.save();
    await this.runtime.provide();
    return success(describe(bucket));
  }

  async remove(request) {
    const { name, jurisdiction, slot } = this.bucket(request);
    const key = `${jurisdiction}/${name}`;
    const answer = await this.runtime.call({ op: "r2.list", slot, options: { limit: 1 } });
    const { objects } = JSON.parse(Buffer.concat(await answer.body.toArray()).toString());
    const open = Object.values(this.store.state.uploads).some((u) => u.bucket === key);
    if (objects.length > 0 || open) throw new ApiError(409, 10008, "The bucket you tried to delete is not empty.");
    delete this.store.state.buckets[key];
    this.store.save();
    this.runtime.discard("r2", slot);
    return success(null);
  }

  // Single objects through the REST API, as wrangler's `r2 object` uses them. Larger ones go through S3.

  async getObject(request) {
    const { slot } = this.bucket(request);
    const answer = await this.runtime.call({ op: "r2.get", slot, key: request.params.key });
    if (answer.missing) {
      answer.body.resume();
      throw new ApiError(404, 10007, "The specified key does not exist.");
    }
    const { etag, size, httpMetadata } = answer.data;
    const headers = { etag: `"${etag}"`, "content-length": String(size), "content-type": httpMetadata.contentType ?? "application/octet-stream" };
    return { status: 200, headers, body: answer.body };
  }

  async putObject(request) {
    const { slot } = this.bucket(request);
    const body = await request.bytes(OBJECT_BYTES);
    const options = { httpMetadata: { contentType: request.headers["content-type"] } };
    const { key, etag, size, uploaded } = await this.runtime.do({ op: "r2.put", slot, key: request.params.key, options }, { body });
    return success({ key, etag, size, uploaded });
  }

  async deleteObject(request) {
    const { slot } = this.bucket(request);
    await this.runtime.do({ op: "r2.delete", slot, keys: [request.params.key] });
    return success({ key: request.params.key });
  }
}

function describe({ name, jurisdiction, location, storage_class, creation_date }) {
  return { name, creation_date, location, storage_class, jurisdiction };
}

function jurisdictionOf({ headers }) {
  const asked = headers["cf-r2-jurisdiction"] || "default";
  if (!JURISDICTIONS.includes(asked)) throw new ApiError(400, 10001, `"${asked}" is no jurisdiction: ${JURISDICTIONS.join(", ")}.`);
  return asked;
}
