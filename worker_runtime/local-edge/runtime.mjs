// Real workerd, through one Miniflare. Requests are readers and a reload is a writer: a reload waits for the
// requests in flight, and requests that come meanwhile wait for it, so nobody sees workerd restart.

import http from "node:http";
import fs from "node:fs";
import path from "node:path";
import { createHash, createHmac, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Miniflare } from "miniflare";
import { CF } from "./cf.mjs";
import { forgetEnded } from "./processes.mjs";
import { GATEWAY, tryVersion, workerOptions } from "./workers.mjs";

const SPARE_SLOTS = 4;
const HEADER_BYTES = 128 * 1024;
const DRAIN_MS = 15_000;
/** How often a call is sent again: while workerd comes back, and a little when a connection broke under it. */
const RETRIES = { ECONNREFUSED: 40, ECONNRESET: 2, EPIPE: 2 };

/** A failure that the gateway reported, with R2's or KV's own code when it gave one. */
export class GatewayError extends Error {
  constructor({ code, message, stack }) {
    super(message);
    this.code = code;
    this.remoteStack = stack;
  }
}

export class Runtime {
  #mf;
  #secret = randomBytes(24).toString("hex");
  #loaded = new Map();
  #capacity = { r2: 0, kv: 0 };
  #readers = 0;
  #idle = [];
  #reloading = null;
  #pending = null;
  // workerd closes a connection that was idle for 5 s; ours go before, so that none is used as it closes.
  #agent = new http.Agent({ keepAlive: true, maxSockets: 512, timeout: 4_000 });
  /** Versions that did not start when the edge did: they stay in the state, and are not loaded. */
  #refused = new Set();

  /**
   * @param {import("./store.mjs").Store} store
   * @param {{inspectorPort?: number, log: (line: object) => void}} options
   */
  constructor(store, { inspectorPort, log }) {
    this.store = store;
    this.inspectorPort = inspectorPort;
    this.log = log;
    /** Undeployed versions that previews asked for, oldest first. */
    this.previews = [];
    this.reloads = 0;
  }

  async start() {
    try {
      await this.#begin();
    } catch (error) {
      // Every version started once, but perhaps under another workerd: find out which do not any more.
      this.log({ event: "error", text: error.message });
      await this.#mf.dispose().catch(() => {});
      for (const id of this.#wanted().keys()) {
        const complaint = await this.#try(id);
        if (complaint) this.#refused.add(id);
        if (complaint) this.log({ event: "refused", script: this.store.state.versions[id].script, version: id, text: complaint });
      }
      await this.#begin();
    }
  }

  async #begin() {
    this.#mf = new Miniflare(await this.#options(this.#wanted()));
    await this.#mf.ready;
  }

  #try(id) {
    const version = this.store.state.versions[id];
    const files = new Map(version.modules.map((m) => [m.name, this.store.getModule(m.sha256)]));
    return tryVersion(this.store, version, files, this.store.secrets[id] ?? {});
  }

  async stop() {
    this.#agent.destroy();
    await this.#mf?.dispose();
  }

  /** A storage slot for a new bucket ("r2") or namespace ("kv"). Record its owner, then `await provide()`. */
  allocate(kind) {
    const number = this.store.state.slots[kind];
    this.store.state.slots[kind] = number + 1;
    return `${kind}${number}`;
  }

  /** Binds allocated slots; restarts workerd only when the spare ones ran out or a loaded Worker needs the new owner. */
  async provide() {
    const { r2, kv } = this.store.state.slots;
    if (r2 > this.#capacity.r2 || kv > this.#capacity.kv) await this.#reload();
    await this.ensure();
  }

  /** Removes a slot's files. Its number is never handed out again, so an open file of workerd's is harmless. */
  discard(kind, slot) {
    const root = path.join(this.#persist(), kind);
    const key = `miniflare-${kind === "r2" ? "R2BucketObject" : "KVNamespaceObject"}`;
    fs.rmSync(path.join(root, slot), { recursive: true, force: true });
    for (const suffix of ["", "-wal", "-shm"]) fs.rmSync(path.join(root, key, `${objectId(key, slot)}.sqlite${suffix}`), { force: true });
  }

  /**
   * Makes sure that these versions, and everything deployed, can be reached.
   * @param {string[]} [ids] versions beyond the deployed ones, for previews
   */
  async ensure(ids = []) {
    for (const id of ids) {
      this.previews = [...this.previews.filter((p) => p !== id), id].slice(-10);
    }
    const wanted = this.#wanted();
    if ([...wanted].every(([id, print]) => this.#loaded.get(id) === print)) return;
    await this.#reload();
  }

  /**
   * One call to the gateway.
   * @param {object} call the operation, see gateway.worker.mjs
   * @param {{method?: string, headers?: Record<string, string | string[]>, body?: Buffer | import("node:stream").Readable | null, cf?: object, length?: number}} [request]
   * @returns {Promise<{status: number, headers: http.IncomingHttpHeaders, raw: string[], body: http.IncomingMessage, data: any, missing: boolean}>}
   */
  async call(call, request = {}) {
    const replayable = !request.body || Buffer.isBuffer(request.body);
    for (let attempt = 0; ; attempt += 1) {
      const release = await this.#enter();
      try {
        const response = await this.#send(call, request);
        response.body.once("close", release);
        return this.#read(response);
      } catch (error) {
        release();
        if (error instanceof GatewayError || request.signal?.aborted) throw error;
        if (!replayable || attempt >= (RETRIES[error.code] ?? 0)) throw error;
        await sleep(Math.min(50 * (attempt + 1), 500));
      }
    }
  }

  /** Like `call`, for an answer without a body worth keeping. */
  async do(call, request) {
    const response = await this.call(call, request);
    response.body.resume();
    return response.missing ? undefined : response.data;
  }

  async inspector() {
    return this.inspectorPort === undefined ? null : String(await this.#mf.getInspectorURL());
  }

  #read(response) {
    const { headers } = response;
    if (headers["x-edge-error"]) {
      response.body.resume();
      throw new GatewayError(JSON.parse(decodeURIComponent(headers["x-edge-error"])));
    }
    const data = headers["x-edge-data"] ? JSON.parse(decodeURIComponent(headers["x-edge-data"])) : undefined;
    return { ...response, data, missing: headers["x-edge-missing"] === "1" };
  }

  async #send(call, { method = "POST", headers = {}, body = null, cf = {}, length, signal }) {
    const url = await this.#mf.ready;
    const sent = {
      ...headers,
      host: url.host,
      "x-edge-secret": this.#secret,
      "x-edge-call": encodeURIComponent(JSON.stringify(call)),
      "mf-cf-blob": asciiJson({ ...CF, ...cf }),
      "mf-disable-pretty-error": "1",
    };
    if (Buffer.isBuffer(body)) sent["content-length"] = String(body.length);
    else if (length !== undefined) sent["content-length"] = String(length);
    // A body that cannot be sent twice goes over a connection of its own, which nothing can have closed.
    const agent = body === null || Buffer.isBuffer(body) ? this.#agent : false;
    return await new Promise((resolve, reject) => {
      const outgoing = http.request({ host: url.hostname, port: url.port, path: "/", method, headers: sent, agent, signal, maxHeaderSize: HEADER_BYTES });
      outgoing.once("error", reject);
      outgoing.once("response", (incoming) => {
        incoming.on("error", () => {});
        resolve({ status: incoming.statusCode, headers: incoming.headers, raw: incoming.rawHeaders, body: incoming });
      });
      if (body === null || Buffer.isBuffer(body)) {
        outgoing.end(body ?? undefined);
      } else {
        body.once("error", (error) => outgoing.destroy(error));
        body.pipe(outgoing);
      }
    });
  }

  async #enter() {
    while (this.#reloading) await this.#reloading.catch(() => {});
    this.#readers += 1;
    let open = true;
    return () => {
      if (!open) return;
      open = false;
      this.#readers -= 1;
      if (this.#readers === 0) for (const wake of this.#idle.splice(0)) wake();
    };
  }

  /** Joins the reload that has not yet begun, or asks for one. */
  #reload() {
    this.#pending ??= (async () => {
      while (this.#reloading) await this.#reloading.catch(() => {});
      await null;
      this.#pending = null;
      this.#reloading = this.#swap();
      try {
        await this.#reloading;
      } finally {
        this.#reloading = null;
      }
    })();
    return this.#pending;
  }

  async #swap() {
    const begun = Date.now();
    if (this.#readers > 0) {
      await Promise.race([new Promise((wake) => this.#idle.push(wake)), sleep(DRAIN_MS, undefined, { ref: false })]);
    }
    const before = new Map(this.#loaded);
    const cut = this.#readers;
    try {
      await this.#mf.setOptions(await this.#options(this.#wanted()));
    } catch (error) {
      // The versions were tried alone when they were uploaded, so this is rare; keep serving the old ones.
      this.previews = this.previews.filter((id) => before.has(id));
      await this.#mf.setOptions(await this.#options(before));
      throw error;
    } finally {
      this.reloads += 1;
      forgetEnded(path.join(this.store.dir, "run", "workerd"));
      this.log({ event: "reload", workers: this.#loaded.size, cut, ms: Date.now() - begun });
    }
  }

  /** Version id -> fingerprint of what it would be loaded with. */
  #wanted() {
    const { scripts, versions } = this.store.state;
    const deployed = Object.values(scripts).flatMap((s) => s.deployments[0]?.versions.map((v) => v.version_id) ?? []);
    this.previews = this.previews.filter((id) => versions[id]);
    const ids = [...new Set([...deployed, ...this.previews])].filter((id) => versions[id] && !this.#refused.has(id));
    return new Map(ids.map((id) => [id, this.#print(id)]));
  }

  #print(id) {
    const { kvNamespaces, r2Buckets } = workerOptions(this.store, id, { modules: false });
    return JSON.stringify([kvNamespaces, r2Buckets]);
  }

  async #options(wanted) {
    const slots = this.store.state.slots;
    this.#capacity = { r2: slots.r2 + SPARE_SLOTS, kv: slots.kv + SPARE_SLOTS * 4 };
    this.#loaded = wanted;
    const ids = [...wanted.keys()].filter((id) => this.store.state.versions[id]);
    const names = (kind) => Array.from({ length: this.#capacity[kind] }, (_, n) => `${kind}${n}`).filter((slot) => this.#live(kind, slot));
    return {
      host: "127.0.0.1",
      port: 0,
      cf: CF,
      inspectorPort: this.inspectorPort,
      inspectorHost: this.inspectorPort === undefined ? undefined : "127.0.0.1",
      defaultPersistRoot: this.#persist(),
      r2Persist: path.join(this.#persist(), "r2"),
      kvPersist: path.join(this.#persist(), "kv"),
      cachePersist: path.join(this.#persist(), "cache"),
      logRequests: false,
      handleRuntimeStdio: (out, err) => this.#follow(out, err),
      workers: [
        {
          name: GATEWAY,
          modules: [{ type: "ESModule", path: "gateway.worker.mjs", contents: gatewaySource() }],
          modulesRoot: "/",
          compatibilityDate: "2026-07-01",
          bindings: { EDGE_SECRET: this.#secret },
          r2Buckets: Object.fromEntries(names("r2").map((slot) => [slot, slot])),
          kvNamespaces: Object.fromEntries(names("kv").map((slot) => [slot, slot])),
          serviceBindings: Object.fromEntries(ids.map((id) => [id, id])),
        },
        ...ids.map((id) => workerOptions(this.store, id)),
      ],
    };
  }

  /** Slots of removed buckets and namespaces are not bound again; spare ones are. */
  #live(kind, slot) {
    const number = Number(slot.slice(2));
    if (number >= this.store.state.slots[kind]) return true;
    const owners = kind === "r2" ? this.store.state.buckets : this.store.state.namespaces;
    return Object.values(owners).some((o) => o.slot === slot);
  }

  #follow(out, err) {
    for (const [stream, name] of [[out, "stdout"], [err, "stderr"]]) {
      let rest = "";
      stream.setEncoding("utf8");
      stream.on("data", (text) => {
        const lines = (rest + text).split("\n");
        rest = lines.pop();
        for (const line of lines) if (line.trim()) this.log({ event: "workerd", stream: name, text: line.slice(0, 2000) });
      });
      stream.on("error", () => {});
    }
  }

  #persist() {
    return path.join(this.store.dir, "storage");
  }
}

let source;
function gatewaySource() {
  source ??= fs.readFileSync(new URL("./gateway.worker.mjs", import.meta.url), "utf8");
  return source;
}

/** A durable object's file name as miniflare computes it (durableObjectNamespaceIdFromName in 4.20260730). */
function objectId(uniqueKey, name) {
  const key = createHash("sha256").update(uniqueKey).digest();
  const hash = createHmac("sha256", key).update(name).digest().subarray(0, 16);
  const check = createHmac("sha256", key).update(hash).digest().subarray(0, 16);
  return Buffer.concat([hash, check]).toString("hex");
}

function asciiJson(value) {
  return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
