// R2's S3 API: path style under /s3/<jurisdiction>/<bucket>/<key>, every request signed.

import { createHash } from "node:crypto";
import { Transform } from "node:stream";
import { GatewayError } from "./runtime.mjs";
import { JURISDICTIONS } from "./buckets.mjs";
import { SignatureError, verify } from "./sigv4.mjs";
import { element, parseCompletion, parseDeletion, xml } from "./s3xml.mjs";

const SMALL_BODY = 8 * 1024 * 1024;
const OBJECT_BYTES = 5 * 1024 ** 3 - 5 * 1024 ** 2;
const KEY_BYTES = 1024;

class S3Error extends Error {
  constructor(status, code, message, headers = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

/** R2's binding errors -> S3's. */
const CODES = new Map([
  [10007, [404, "NoSuchKey"]],
  [10020, [400, "InvalidObjectName"]],
  [10011, [400, "EntityTooSmall"]],
  [100100, [400, "EntityTooLarge"]],
  [10012, [400, "MetadataTooLarge"]],
  [10024, [404, "NoSuchUpload"]],
  [10025, [400, "InvalidPart"]],
  [10031, [412, "PreconditionFailed"]],
  [10037, [400, "BadDigest"]],
  [10039, [416, "InvalidRange"]],
  [10048, [400, "InvalidPart"]],
  [10022, [400, "InvalidArgument"]],
  [10029, [400, "InvalidArgument"]],
]);

export class S3 {
  /**
   * @param {import("./store.mjs").Store} store
   * @param {import("./runtime.mjs").Runtime} runtime
   * @param {import("./buckets.mjs").Buckets} buckets
   * @param {{access_key_id: string, secret_access_key: string}} keys
   */
  constructor(store, runtime, buckets, keys) {
    this.store = store;
    this.runtime = runtime;
    this.buckets = buckets;
    this.keys = keys;
  }

  /** @param {{method: string, path: string, queryText: string, query: URLSearchParams, headers: any, stream: any, bytes: Function}} request */
  async handle(request) {
    try {
      return await this.#route(request);
    } catch (error) {
      return errorAnswer(translate(error), request);
    }
  }

  async #route(request) {
    const payload = verify({ method: request.method, path: request.path, query: request.queryText, headers: request.headers }, this.keys, Date.now());
    if (payload.startsWith("STREAMING-")) {
      throw new S3Error(501, "NotImplemented", `${payload} not implemented: send the body unchunked, with its SHA-256 or UNSIGNED-PAYLOAD (boto3: request_checksum_calculation="when_required").`);
    }
    const [, , jurisdiction, name, ...rest] = request.path.split("/");
    if (!JURISDICTIONS.includes(jurisdiction)) throw new S3Error(400, "InvalidRequest", `"${jurisdiction}" is no jurisdiction: ${JURISDICTIONS.join(", ")}.`);
    const place = { jurisdiction, bucketName: decodeURIComponent(name ?? ""), key: rest.map(decodeURIComponent).join("/"), payload };
    if (!place.bucketName) return this.#listBuckets(request, place);
    if (place.key === "" && request.method === "PUT") {
      throw new S3Error(501, "NotImplemented", "Buckets are created through the v4 API: POST /accounts/{id}/r2/buckets.");
    }
    const bucket = this.buckets.find(jurisdiction, place.bucketName);
    if (!bucket) throw new S3Error(404, "NoSuchBucket", "The specified bucket does not exist.");
    const at = { ...place, slot: bucket.slot, owner: `${jurisdiction}/${bucket.name}`, bucket };
    return place.key === "" ? this.#onBucket(request, at) : this.#onObject(request, at);
  }

  #onBucket(request, at) {
    const { method, query } = request;
    if (method === "HEAD") return { status: 200, headers: { "x-amz-bucket-region": "auto" } };
    if (method === "POST" && query.has("delete")) return this.#deleteMany(request, at);
    if (method !== "GET") throw new S3Error(501, "NotImplemented", `${method} on a bucket is not implemented.`);
    if (query.has("location")) return xml(200, element("LocationConstraint", "auto"));
    if (query.has("uploads")) return this.#listUploads(request, at);
    const other = ["acl", "cors", "lifecycle", "policy", "tagging", "versioning", "versions", "encryption"].find((q) => query.has(q));
    if (other) throw new S3Error(501, "NotImplemented", `The sub-resource "${other}" is not implemented.`);
    return this.#list(request, at);
  }

  #onObject(request, at) {
    const { method, query } = request;
    if (Buffer.byteLength(at.key) > KEY_BYTES) throw new S3Error(400, "KeyTooLongError", `The key is over ${KEY_BYTES} bytes.`);
    const upload = query.get("uploadId");
    if (method === "GET" && upload) return this.#listParts(request, at);
    if (method === "GET" || method === "HEAD") return this.#read(request, at);
    if (method === "PUT" && upload) return this.#uploadPart(request, at);
    if (method === "PUT" && request.headers["x-amz-copy-source"]) throw new S3Error(501, "NotImplemented", "CopyObject is not implemented.");
    if (method === "PUT") return this.#put(request, at);
    if (method === "DELETE" && upload) return this.#abort(request, at);
    if (method === "DELETE") return this.#delete(at);
    if (method === "POST" && query.has("uploads")) return this.#createUpload(request, at);
    if (method === "POST" && upload) return this.#complete(request, at);
    throw new S3Error(501, "NotImplemented", `${method} on an object is not implemented.`);
  }

  // --- objects -------------------------------------------------------------------------------------------------

  async #read(request, { slot, key }) {
    const head = request.method === "HEAD";
    const range = head ? undefined : parseRange(request.headers.range);
    const answer = await this.runtime.call({ op: head ? "r2.head" : "r2.get", slot, key, range });
    if (answer.missing) {
      answer.body.resume();
      throw new S3Error(404, "NoSuchKey", "The specified key does not exist.");
    }
    const object = answer.data;
    const headers = objectHeaders(object);
    const verdict = conditions(request.headers, object);
    if (verdict !== "ok") {
      answer.body.resume();
      if (verdict === "unchanged") return { status: 304, headers: { etag: headers.etag, "last-modified": headers["last-modified"] } };
      throw new S3Error(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.");
    }
    for (const [query, header] of OVERRIDES) if (request.query.get(query)) headers[header] = request.query.get(query);
    if (head) {
      answer.body.resume();
      return { status: 200, headers: { ...headers, "content-length": String(object.size) } };
    }
    if (!range || object.size === 0) return { status: 200, headers: { ...headers, "content-length": String(object.size) }, body: answer.body };
    const { offset = 0, length = object.size } = object.range;
    const sent = { ...headers, "content-length": String(length), "content-range": `bytes ${offset}-${offset + length - 1}/${object.size}` };
    return { status: 206, headers: sent, body: answer.body };
  }

  async #put(request, { slot, key, payload }) {
    const length = contentLength(request.headers);
    const sums = checksums(request.headers, payload);
    const onlyIf = {};
    for (const name of ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"]) {
      if (request.headers[name]) onlyIf[name] = request.headers[name];
    }
    const options = { httpMetadata: httpMetadata(request.headers), customMetadata: customMetadata(request.headers), ...sums.kept };
    const body = await checkedBody(request, length, sums);
    const call = { op: "r2.put", slot, key, options, onlyIf: Object.keys(onlyIf).length > 0 ? onlyIf : undefined };
    const object = await this.runtime.do(call, { body, length }).catch((error) => {
      throw body.verdict ?? error;
    });
    const headers = { etag: `"${object.etag}"`, "content-length": "0" };
    if (request.headers["x-amz-checksum-sha256"]) headers["x-amz-checksum-sha256"] = request.headers["x-amz-checksum-sha256"];
    return { status: 200, headers };
  }

  async #delete({ slot, key }) {
    await this.runtime.do({ op: "r2.delete", slot, keys: [key] });
    return { status: 204 };
  }

  async #deleteMany(request, { slot, payload }) {
    const { keys, quiet } = parseDeletion((await small(request, payload)).toString("utf8"));
    if (!keys || keys.length === 0 || keys.length > 1000) throw new S3Error(400, "MalformedXML", "DeleteObjects takes 1 to 1000 keys.");
    await this.runtime.do({ op: "r2.delete", slot, keys });
    return xml(200, element("DeleteResult", quiet ? [] : keys.map((key) => element("Deleted", [element("Key", key)]))));
  }

  async #list(request, at) {
    const { query } = request;
    const v2 = query.get("list-type") === "2";
    const limit = query.has("max-keys") ? Number(query.get("max-keys")) : 1000;
    if (!Number.isInteger(limit) || limit < 0) throw new S3Error(400, "InvalidArgument", "max-keys must be a number from 0 to 1000.");
    const prefix = query.get("prefix") ?? "";
    const delimiter = query.get("delimiter") || undefined;
    const after = (v2 ? query.get("start-after") : query.get("marker")) || undefined;
    const token = v2 ? query.get("continuation-token") || undefined : undefined;
    const encode = query.get("encoding-type") === "url" ? (text) => encodeURIComponent(text).replaceAll("%2F", "/") : (text) => text;
    const most = Math.min(limit, 1000);
    const found = most === 0 ? { objects: [], truncated: false, delimitedPrefixes: [] } : await this.#page(at.slot, { prefix, delimiter, limit: most, startAfter: after, cursor: token });
    const contents = found.objects.map((o) =>
      element("Contents", [
        element("Key", encode(o.key)),
        element("LastModified", o.uploaded),
        element("ETag", `"${o.etag}"`),
        element("Size", o.size),
        element("StorageClass", "STANDARD"),
      ]),
    );
    const common = found.delimitedPrefixes.map((p) => element("CommonPrefixes", [element("Prefix", encode(p))]));
    const last = [...found.objects.map((o) => o.key), ...found.delimitedPrefixes].sort().at(-1);
    const paging = v2
      ? [
          element("KeyCount", contents.length + common.length),
          ...(token ? [element("ContinuationToken", token)] : []),
          ...(found.cursor ? [element("NextContinuationToken", found.cursor)] : []),
          ...(after ? [element("StartAfter", encode(after))] : []),
        ]
      : [element("Marker", encode(after ?? "")), ...(found.truncated ? [element("NextMarker", encode(last))] : [])];
    return xml(200, element("ListBucketResult", [
      element("Name", at.bucketName),
      element("Prefix", encode(prefix)),
      ...(delimiter ? [element("Delimiter", encode(delimiter))] : []),
      ...(query.get("encoding-type") ? [element("EncodingType", "url")] : []),
      element("MaxKeys", limit),
      element("IsTruncated", found.truncated),
      ...paging,
      ...contents,
      ...common,
    ]));
  }

  async #page(slot, options) {
    const answer = await this.runtime.call({ op: "r2.list", slot, options });
    return JSON.parse(Buffer.concat(await answer.body.toArray()).toString("utf8"));
  }

  #listBuckets(request, { jurisdiction }) {
    if (request.method !== "GET") throw new S3Error(501, "NotImplemented", `${request.method} / is not implemented.`);
    const found = Object.values(this.store.state.buckets).filter((b) => b.jurisdiction === jurisdiction).sort((a, b) => (a.name < b.name ? -1 : 1));
    const buckets = found.map((b) => element("Bucket", [element("CreationDate", b.creation_date), element("Name", b.name)]));
    return xml(200, element("ListAllMyBucketsResult", [element("Buckets", buckets), element("Owner", [element("ID", "local")])]));
  }

  // --- multipart uploads ---------------------------------------------------------------------------------------
  // R2's binding cannot list uploads or parts, so what is open is also kept in the state.

  async #createUpload(request, { slot, key, owner, bucketName, payload }) {
    await small(request, payload);
    const options = { httpMetadata: httpMetadata(request.headers), customMetadata: customMetadata(request.headers) };
    const { uploadId } = await this.runtime.do({ op: "r2.create-upload", slot, key, options });
    this.store.state.uploads[uploadId] = { bucket: owner, key, initiated: new Date().toISOString(), parts: {} };
    this.store.save();
    return xml(200, element("InitiateMultipartUploadResult", [element("Bucket", bucketName), element("Key", key), element("UploadId", uploadId)]));
  }

  #upload(request, { owner, key }) {
    const id = request.query.get("uploadId");
    const upload = Object.hasOwn(this.store.state.uploads, id) ? this.store.state.uploads[id] : undefined;
    if (!upload || upload.bucket !== owner || upload.key !== key) {
      throw new S3Error(404, "NoSuchUpload", "The specified multipart upload does not exist.");
    }
    return { id, upload };
  }

  async #uploadPart(request, at) {
    const { id, upload } = this.#upload(request, at);
    const part = Number(request.query.get("partNumber"));
    if (!Number.isInteger(part) || part < 1 || part > 10_000) throw new S3Error(400, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive.");
    const length = contentLength(request.headers);
    const sums = checksums(request.headers, at.payload);
    const body = await checkedBody(request, length, sums, { md5: true });
    const { etag } = await this.runtime.do({ op: "r2.upload-part", slot: at.slot, key: at.key, uploadId: id, part }, { body, length }).catch((error) => {
      throw body.verdict ?? error;
    });
    upload.parts[part] = { etag, md5: body.md5, size: length, uploaded: new Date().toISOString() };
    this.store.save();
    return { status: 200, headers: { etag: `"${body.md5}"`, "content-length": "0" } };
  }

  async #complete(request, at) {
    const { id, upload } = this.#upload(request, at);
    const given = parseCompletion((await small(request, at.payload)).toString("utf8"));
    if (!given || given.length === 0) throw new S3Error(400, "MalformedXML", "CompleteMultipartUpload names at least one part.");
    if (given.some((p, n) => n > 0 && p.number <= given[n - 1].number)) throw new S3Error(400, "InvalidPartOrder", "The list of parts was not in ascending order.");
    const parts = given.map(({ number, etag }) => {
      const part = upload.parts[number];
      if (!part || part.md5 !== etag) throw new S3Error(400, "InvalidPart", `Part ${number} was not uploaded with the entity tag ${etag}.`);
      return { partNumber: number, etag: part.etag };
    });
    const object = await this.runtime.do({ op: "r2.complete-upload", slot: at.slot, key: at.key, uploadId: id }, { body: Buffer.from(JSON.stringify(parts)) });
    delete this.store.state.uploads[id];
    this.store.save();
    return xml(200, element("CompleteMultipartUploadResult", [element("Bucket", at.bucketName), element("Key", at.key), element("ETag", `"${object.etag}"`)]));
  }

  async #abort(request, at) {
    const { id } = this.#upload(request, at);
    await this.runtime.do({ op: "r2.abort-upload", slot: at.slot, key: at.key, uploadId: id });
    delete this.store.state.uploads[id];
    this.store.save();
    return { status: 204 };
  }

  #listUploads(request, at) {
    const prefix = request.query.get("prefix") ?? "";
    const open = Object.entries(this.store.state.uploads)
      .filter(([, u]) => u.bucket === at.owner && u.key.startsWith(prefix))
      .sort(([, a], [, b]) => (a.key < b.key ? -1 : 1));
    const uploads = open.map(([id, u]) => element("Upload", [element("Key", u.key), element("UploadId", id), element("Initiated", u.initiated), element("StorageClass", "STANDARD")]));
    return xml(200, element("ListMultipartUploadsResult", [element("Bucket", at.bucketName), element("Prefix", prefix), element("IsTruncated", false), ...uploads]));
  }

  #listParts(request, at) {
    const { id, upload } = this.#upload(request, at);
    const parts = Object.entries(upload.parts)
      .map(([number, p]) => [Number(number), p])
      .sort(([a], [b]) => a - b)
      .map(([number, p]) => element("Part", [element("PartNumber", number), element("LastModified", p.uploaded), element("ETag", `"${p.md5}"`), element("Size", p.size)]));
    return xml(200, element("ListPartsResult", [element("Bucket", at.bucketName), element("Key", at.key), element("UploadId", id), element("IsTruncated", false), ...parts]));
  }
}

// --- bodies ------------------------------------------------------------------------------------------------------

function contentLength(headers) {
  const length = Number(headers["content-length"]);
  if (headers["content-length"] === undefined || !Number.isInteger(length)) throw new S3Error(411, "MissingContentLength", "You must provide the Content-Length HTTP header.");
  if (length > OBJECT_BYTES) throw new S3Error(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed object size.");
  return length;
}

/** What the body must hash to, and what of it R2 keeps with the object. */
function checksums(headers, payload) {
  const unsupported = Object.keys(headers).find((h) => /^x-amz-checksum-(crc|sha1)/.test(h));
  if (unsupported || headers["x-amz-trailer"]) {
    throw new S3Error(501, "NotImplemented", `${unsupported ?? "x-amz-trailer"} is not implemented: send x-amz-checksum-sha256 (boto3: request_checksum_calculation="when_required").`);
  }
  const sha256 = /^[0-9a-f]{64}$/.test(payload) ? payload : undefined;
  const given = headers["x-amz-checksum-sha256"];
  const checksum = given === undefined ? undefined : Buffer.from(given, "base64").toString("hex");
  if (checksum !== undefined && checksum.length !== 64) throw new S3Error(400, "InvalidRequest", "x-amz-checksum-sha256 must be 32 bytes in base64.");
  const md5 = headers["content-md5"] ? Buffer.from(headers["content-md5"], "base64").toString("hex") : undefined;
  if (md5 !== undefined && md5.length !== 32) throw new S3Error(400, "InvalidDigest", "Content-MD5 must be 16 bytes in base64.");
  return { payload: sha256, checksum, md5, kept: checksum ? { sha256: checksum } : {} };
}

/** Streams the body on, holding the last piece back until the hashes agree: a wrong body is never stored. */
async function checkedBody(request, length, sums, { md5 = false } = {}) {
  if (length === 0) {
    const empty = Buffer.alloc(0);
    const wrong = mismatch(sums, hashOf("sha256", empty), hashOf("md5", empty));
    if (wrong) throw wrong;
    empty.md5 = hashOf("md5", empty);
    return empty;
  }
  const sha = createHash("sha256");
  const digest = md5 || sums.md5 ? createHash("md5") : undefined;
  let held = null;
  const body = new Transform({
    transform(chunk, _encoding, done) {
      sha.update(chunk);
      digest?.update(chunk);
      if (held) this.push(held);
      held = chunk;
      done();
    },
    flush(done) {
      body.md5 = digest?.digest("hex");
      body.verdict = mismatch(sums, sha.digest("hex"), body.md5);
      if (!body.verdict && held) this.push(held);
      done(body.verdict);
    },
  });
  request.stream.on("error", (error) => body.destroy(error));
  request.stream.on("aborted", () => body.destroy(new Error("the client went away")));
  return request.stream.pipe(body);
}

function mismatch(sums, sha256, md5) {
  if (sums.payload && sums.payload !== sha256) return new S3Error(400, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.");
  if (sums.checksum && sums.checksum !== sha256) return new S3Error(400, "BadDigest", "The SHA-256 checksum you specified did not match what we received.");
  if (sums.md5 && sums.md5 !== md5) return new S3Error(400, "BadDigest", "The Content-MD5 you specified did not match what we received.");
  return null;
}

async function small(request, payload) {
  const body = await request.bytes(SMALL_BODY);
  const wrong = mismatch(checksums({ "content-md5": request.headers["content-md5"] }, payload), hashOf("sha256", body), hashOf("md5", body));
  if (wrong) throw wrong;
  return body;
}

function hashOf(algorithm, bytes) {
  return createHash(algorithm).update(bytes).digest("hex");
}

// --- headers -----------------------------------------------------------------------------------------------------

const HTTP_METADATA = [
  ["content-type", "contentType"],
  ["content-language", "contentLanguage"],
  ["content-disposition", "contentDisposition"],
  ["content-encoding", "contentEncoding"],
  ["cache-control", "cacheControl"],
];
const OVERRIDES = HTTP_METADATA.map(([header]) => [`response-${header}`, header]);

function httpMetadata(headers) {
  return Object.fromEntries(HTTP_METADATA.filter(([h]) => headers[h]).map(([h, field]) => [field, headers[h]]));
}

function customMetadata(headers) {
  const pairs = Object.entries(headers).filter(([h]) => h.startsWith("x-amz-meta-"));
  return Object.fromEntries(pairs.map(([h, value]) => [h.slice("x-amz-meta-".length), String(value)]));
}

function objectHeaders(object) {
  const headers = { etag: `"${object.etag}"`, "last-modified": new Date(object.uploaded).toUTCString(), "accept-ranges": "bytes", "content-type": "application/octet-stream" };
  for (const [header, field] of HTTP_METADATA) if (object.httpMetadata?.[field]) headers[header] = object.httpMetadata[field];
  for (const [name, value] of Object.entries(object.customMetadata ?? {})) headers[`x-amz-meta-${name}`] = value;
  if (object.checksums?.sha256) headers["x-amz-checksum-sha256"] = Buffer.from(object.checksums.sha256, "hex").toString("base64");
  return headers;
}

/** RFC 9110's order: If-Match, If-Unmodified-Since, If-None-Match, If-Modified-Since. */
function conditions(headers, object) {
  const second = (text) => Math.floor(new Date(text).getTime() / 1000);
  const tags = (text) => text.split(",").map((t) => t.trim().replace(/^W\//, "").replaceAll('"', ""));
  const has = (text) => text.trim() === "*" || tags(text).includes(object.etag);
  if (headers["if-match"] && !has(headers["if-match"])) return "failed";
  if (!headers["if-match"] && headers["if-unmodified-since"] && second(object.uploaded) > second(headers["if-unmodified-since"])) return "failed";
  if (headers["if-none-match"]) return has(headers["if-none-match"]) ? "unchanged" : "ok";
  if (headers["if-modified-since"] && second(object.uploaded) <= second(headers["if-modified-since"])) return "unchanged";
  return "ok";
}

function parseRange(header) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (!match || (match[1] === "" && match[2] === "")) return undefined;
  if (match[1] === "") return { suffix: Number(match[2]) };
  const offset = Number(match[1]);
  if (match[2] === "") return { offset };
  if (Number(match[2]) < offset) return undefined;
  return { offset, length: Number(match[2]) - offset + 1 };
}

// --- errors ------------------------------------------------------------------------------------------------------

function translate(error) {
  if (error instanceof S3Error || error instanceof SignatureError) return error;
  if (error instanceof URIError) return new S3Error(400, "InvalidURI", "Couldn't parse the specified URI.");
  if (error instanceof GatewayError) {
    const [status, code] = CODES.get(error.code) ?? [500, "InternalError"];
    return new S3Error(status, code, error.message);
  }
  if (error?.status === 413) return new S3Error(400, "EntityTooLarge", error.message);
  return error;
}

function errorAnswer(error, request) {
  if (!error.code || !error.status) throw error;
  if (request.method === "HEAD") return { status: error.status, headers: { "content-length": "0" }, problem: error.code };
  return { ...xml(error.status, element("Error", [element("Code", error.code), element("Message", error.message)])), problem: error.code };
}
