// The v4 API: authentication, the account, and a table of routes.

import { createHash, timingSafeEqual } from "node:crypto";
import { ApiError, failure, success } from "./envelope.mjs";
import { GatewayError } from "./runtime.mjs";

const JSON_BYTES = 1024 * 1024;

/**
 * @typedef {object} ApiRequest
 * @property {string} method
 * @property {Record<string, string>} params from the path, decoded
 * @property {URLSearchParams} query
 * @property {import("node:http").IncomingHttpHeaders} headers
 * @property {(limit?: number) => Promise<Buffer>} bytes
 * @property {(limit?: number) => Promise<any>} json
 */

export class Api {
  /**
   * @param {{api_token: string, account_id: string}} credentials
   * @param {{routes: () => [string, string, Function][]}[]} parts under /accounts/{id}
   */
  constructor(credentials, parts) {
    this.credentials = credentials;
    const account = { id: credentials.account_id, name: "edgespec local edge", type: "standard", settings: {}, created_on: "2026-01-01T00:00:00Z" };
    const under = parts.flatMap((part) => part.routes()).map(([method, path, handle]) => [method, `/accounts/:account${path}`, handle]);
    this.table = [
      ["GET", "/user/tokens/verify", () => success({ id: credentials.access_key_id, status: "active" }, { messages: [{ code: 10000, message: "This API Token is valid and active" }] })],
      ["GET", "/accounts/:account/tokens/verify", () => success({ id: credentials.access_key_id, status: "active" })],
      ["GET", "/user", () => success({ id: "local", email: "local@edgespec.invalid" })],
      ["GET", "/memberships", () => success([{ id: "local", status: "accepted", account: { id: account.id, name: account.name }, roles: [] }], { info: onePage(1) })],
      ["GET", "/accounts", () => success([account], { info: onePage(1) })],
      ["GET", "/accounts/:account", () => success(account)],
      ["GET", "/zones", () => success([], { info: onePage(0) })],
      ...under,
    ].map(([method, path, handle]) => ({ method, parts: path.split("/"), handle }));
    /** @type {Map<string, Promise<unknown>>} the last change of each script, bucket or namespace */
    this.lanes = new Map();
  }

  /** @param {import("node:http").IncomingHttpHeaders} headers */
  authenticate(headers) {
    const match = /^Bearer (.+)$/.exec(headers.authorization ?? "");
    if (!match || !same(match[1], this.credentials.api_token)) throw new ApiError(401, 10000, "Authentication error");
  }

  async handle(request) {
    try {
      this.authenticate(request.headers);
      const { route, params } = this.match(request.method, request.path);
      if (params.account !== undefined && params.account !== this.credentials.account_id) {
        throw new ApiError(403, 9109, "Unauthorized to access requested resource");
      }
      const json = async (limit = JSON_BYTES) => parseJson(await request.bytes(limit));
      const call = () => route.handle({ ...request, params, json });
      return await (request.method === "GET" ? call() : this.inOrder(lane(request.path, params), call));
    } catch (error) {
      if (error instanceof ApiError) return failure(error.status, [{ code: error.code, message: error.message }]);
      if (error instanceof GatewayError) return failure(500, [{ code: error.code, message: error.message }]);
      throw error;
    }
  }

  match(method, path) {
    const given = path.split("/");
    let known = false;
    for (const route of this.table) {
      const params = matchParts(route.parts, given);
      if (!params) continue;
      known = true;
      if (route.method === method) return { route, params };
    }
    if (known) throw new ApiError(405, 10405, `${method} is not allowed for this authentication scheme or route.`);
    throw new ApiError(404, 7003, `Could not route to ${path}; the local edge answers a part of the API only.`);
  }

  /** Changes of one thing follow each other; changes of different things run side by side. */
  async inOrder(name, work) {
    if (!name) return work();
    const run = (this.lanes.get(name) ?? Promise.resolve()).then(work, work);
    const settled = run.catch(() => {});
    this.lanes.set(name, settled);
    settled.then(() => this.lanes.get(name) === settled && this.lanes.delete(name));
    return run;
  }
}

/** Values of a namespace are written side by side; everything else of one name is not. */
function lane(path, params) {
  if (path.includes("/storage/kv/")) return params.id ? undefined : "kv";
  if (path.includes("/r2/buckets")) return "r2";
  return params.name ? `script:${params.name}` : undefined;
}

function matchParts(parts, given) {
  const params = {};
  for (const [n, part] of parts.entries()) {
    if (part === ":key" && n === parts.length - 1 && given.length > n) {
      params.key = decode(given.slice(n).join("/"));
      return params;
    }
    if (given[n] === undefined) return null;
    if (part.startsWith(":")) {
      if (given[n] === "") return null;
      params[part.slice(1)] = decode(given[n]);
    } else if (part !== given[n]) return null;
  }
  return given.length === parts.length ? params : null;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new ApiError(400, 7003, `"${text}" is not percent-encoded UTF-8.`);
  }
}

function parseJson(bytes) {
  try {
    const value = JSON.parse(bytes.toString("utf8"));
    if (value === null || typeof value !== "object") throw new Error("not an object or a list");
    return value;
  } catch (error) {
    throw new ApiError(400, 10001, `The body is not JSON: ${error.message}`);
  }
}

function onePage(count) {
  return { page: 1, per_page: 50, count, total_count: count, total_pages: 1 };
}

/** Compares without telling by time how much of the token was right. */
function same(a, b) {
  const hash = (text) => createHash("sha256").update(text).digest();
  return timingSafeEqual(hash(a), hash(b));
}
