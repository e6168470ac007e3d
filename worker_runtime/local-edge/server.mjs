// HTTP on one loopback port: the v4 API, S3, the Workers, and the edge's own two addresses.

import http from "node:http";
import { pipeline } from "node:stream/promises";
import { ApiError, failure, json } from "./envelope.mjs";
import { targetOf } from "./routing.mjs";

const LOOPBACK = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/i;
const UPLOAD_BYTES = 128 * 1024 * 1024;

export class Server {
  /**
   * @param {{api: import("./api.mjs").Api, s3: import("./s3.mjs").S3, routing: import("./routing.mjs").Routing,
   *   status: () => Promise<object>, shutdown: () => void, dir: string, log: (line: object) => void}} parts
   */
  constructor(parts) {
    Object.assign(this, parts);
    this.http = http.createServer((request, response) => this.#serve(request, response));
    // Bodies may be large and Workers slow; a client that goes away ends its request itself.
    this.http.requestTimeout = 0;
    this.http.keepAliveTimeout = 30_000;
  }

  /** @param {number} port @returns {Promise<number>} the port it listens on */
  listen(port) {
    return new Promise((resolve, reject) => {
      this.http.once("error", reject);
      this.http.listen(port, "127.0.0.1", () => resolve(this.http.address().port));
    });
  }

  /** Stops accepting, lets answers end, then closes what is left. */
  async close(graceMs) {
    const closed = new Promise((resolve) => this.http.close(resolve));
    const idle = setInterval(() => this.http.closeIdleConnections(), 50);
    const timer = setTimeout(() => this.http.closeAllConnections(), graceMs);
    await closed;
    clearInterval(idle);
    clearTimeout(timer);
  }

  async #serve(incoming, response) {
    const begun = performance.now();
    const [path, queryText = ""] = split(incoming.url);
    const gone = new AbortController();
    response.once("close", () => response.writableFinished || gone.abort());
    const request = {
      method: incoming.method,
      path,
      queryText,
      query: new URLSearchParams(queryText),
      headers: incoming.headers,
      stream: incoming,
      signal: gone.signal,
      bytes: (limit = UPLOAD_BYTES) => readAll(incoming, limit),
    };
    let answer;
    try {
      answer = await this.#answer(request);
    } catch (error) {
      if (gone.signal.aborted) answer = { status: 499 };
      else answer = unexpected(error);
    }
    this.log({ event: "request", method: incoming.method, path, status: answer.status, ms: Math.round(performance.now() - begun), ...(answer.problem ? { problem: answer.problem } : {}) });
    await this.#send(incoming, response, answer);
  }

  async #answer(request) {
    const target = targetOf(request.headers.host ?? "", request.path);
    if (target) return this.routing.handle(request, target);
    // A web page whose name was made to point at this machine must not read what is meant for it.
    if (!LOOPBACK.test(request.headers.host ?? "")) return { status: 421, headers: { "content-type": "text/plain" }, body: "Misdirected request\n" };
    if (request.path.startsWith("/client/v4/")) return this.api.handle({ ...request, path: request.path.slice("/client/v4".length) });
    if (request.path.startsWith("/s3/")) return this.s3.handle(request);
    if (request.path.startsWith("/edge/")) return this.#edge(request);
    return { status: 404, headers: { "content-type": "text/plain" }, body: "edgespec's local edge: /client/v4/, /s3/<jurisdiction>/, /w/<script>/, /v/<script>/<version>/, /edge/status\n" };
  }

  async #edge(request) {
    // Which project's edge this is, so that another project's can say who has the port. No secret, no token needed.
    if (request.path === "/edge/whoami") return json(200, { edgespec: true, dir: this.dir });
    try {
      this.api.authenticate(request.headers);
    } catch (error) {
      if (error instanceof ApiError) return failure(error.status, [{ code: error.code, message: error.message }]);
      throw error;
    }
    if (request.path === "/edge/status" && request.method === "GET") return json(200, await this.status());
    if (request.path === "/edge/shutdown" && request.method === "POST") {
      setImmediate(this.shutdown);
      return json(202, { stopping: true });
    }
    return json(404, { error: "no such address" });
  }

  async #send(incoming, response, { status, headers = {}, rawHeaders, body = null }) {
    if (response.destroyed) {
      // Nobody reads it any more, and a reload waits for every answer to end.
      body?.destroy?.();
      return;
    }
    try {
      if (typeof body === "string" || Buffer.isBuffer(body)) headers = { "content-length": String(Buffer.byteLength(body)), ...headers };
      if (rawHeaders) for (const [name, value] of rawHeaders) response.appendHeader(name, value);
      response.writeHead(status, headers);
      if (body === null || typeof body === "string" || Buffer.isBuffer(body)) response.end(body ?? undefined);
      else await pipeline(body, response);
      // What an early refusal left unread must not be taken for the next request on this connection.
      if (!incoming.complete) incoming.resume();
    } catch (error) {
      if (!response.headersSent) this.log({ event: "error", text: error.message });
      response.destroy();
    }
  }
}

function split(url) {
  const at = url.indexOf("?");
  return at < 0 ? [url] : [url.slice(0, at), url.slice(at + 1)];
}

async function readAll(incoming, limit) {
  const chunks = [];
  let size = 0;
  for await (const chunk of incoming.iterator({ destroyOnReturn: false })) {
    size += chunk.length;
    if (size > limit) throw new ApiError(413, 10413, `The body is over ${limit} bytes.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, size);
}

function unexpected(error) {
  if (error instanceof ApiError) return failure(error.status, [{ code: error.code, message: error.message }]);
  const answer = failure(503, [{ code: 10001, message: "The local edge could not complete the request; its log says why." }]);
  return { ...answer, headers: { ...answer.headers, "retry-after": "1" }, problem: error?.stack ?? String(error) };
}
