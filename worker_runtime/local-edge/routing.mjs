// From a request's host or path to an uploaded Worker: deployments by percentage, previews, workers.dev rules.

import { randomInt } from "node:crypto";
import { GatewayError } from "./runtime.mjs";

/**
 * @param {string} host the Host header
 * @param {string} path
 * @returns {{script: string, version?: string, rest: string} | null}
 */
export function targetOf(host, path) {
  const sub = /^([a-z0-9_-]+)\.localhost(?::\d+)?$/i.exec(host)?.[1].toLowerCase();
  if (sub) {
    const preview = /^([0-9a-f]{8})-(.+)$/.exec(sub);
    return preview ? { script: preview[2], version: preview[1], rest: path, whole: sub } : { script: sub, rest: path };
  }
  const worker = /^\/w\/([^/]+)(\/.*)?$/.exec(path);
  if (worker) return { script: worker[1], rest: worker[2] ?? "/" };
  const preview = /^\/v\/([^/]+)\/([^/]+)(\/.*)?$/.exec(path);
  if (preview) return { script: preview[1], version: preview[2], rest: preview[3] ?? "/" };
  return null;
}

export class Routing {
  /**
   * @param {import("./store.mjs").Store} store
   * @param {import("./runtime.mjs").Runtime} runtime
   * @param {number} port
   */
  constructor(store, runtime, port) {
    this.store = store;
    this.runtime = runtime;
    this.port = port;
  }

  /** The version that answers, or null when no workers.dev address does. */
  pick({ script: name, version: prefix, whole }, overrides = "") {
    const scripts = this.store.state.scripts;
    // A script may itself be named like "0a1b2c3d-x".
    if (whole && !Object.hasOwn(scripts, name)) return this.pick({ script: whole }, overrides);
    const script = Object.hasOwn(scripts, name) ? scripts[name] : undefined;
    if (!script) return null;
    if (prefix !== undefined) {
      if (!script.subdomain.previews_enabled) return null;
      const found = script.versions.find((id) => id === prefix || (prefix.length === 8 && id.startsWith(prefix)));
      return found ? { name, id: found } : null;
    }
    if (!script.subdomain.enabled || script.deployments.length === 0) return null;
    const { versions } = script.deployments[0];
    const asked = overrideFor(name, overrides);
    return { name, id: versions.some((v) => v.version_id === asked) ? asked : draw(versions) };
  }

  async handle(request, target) {
    const picked = this.pick(target, request.headers["cloudflare-workers-version-overrides"]);
    if (!picked) {
      const message = "error code: 1042\nThere is nothing here yet: no such Worker, no such version, or its workers.dev address is not enabled.\n";
      return { status: 404, headers: { "content-type": "text/plain; charset=utf-8" }, body: message };
    }
    const cf = overrides(request.headers["mf-cf-blob"]);
    if (cf === undefined) return { status: 400, headers: { "content-type": "text/plain" }, body: "The header MF-CF-Blob must be a JSON object.\n" };
    await this.runtime.ensure(target.version ? [picked.id] : []);
    const label = target.version ? `${picked.id.slice(0, 8)}-${picked.name}` : picked.name;
    const host = `${label}.localhost:${this.port}`;
    const call = { op: "worker", worker: picked.id, url: `http://${host}${target.rest}${request.queryText ? `?${request.queryText}` : ""}`, host };
    const method = request.method;
    const body = await bodyOf(request);
    const headers = forwarded(request.headers);
    try {
      const answer = await this.runtime.call(call, { method, headers, body, cf, length: lengthOf(request.headers), signal: request.signal });
      return { status: answer.status, rawHeaders: outgoing(answer.raw), body: answer.body };
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      return { status: error.code === 1042 ? 404 : 500, headers: { "content-type": "text/plain; charset=utf-8" }, body: `error code: ${error.code}\n${error.message}\n`, problem: error.remoteStack ?? error.message };
    }
  }
}

/** The version that the header Cloudflare-Workers-Version-Overrides (`name="id"`, comma-separated) asks for. */
function overrideFor(name, header) {
  return header.split(",").map((pair) => /^\s*([^=\s]+)\s*=\s*"([^"]+)"\s*$/.exec(pair)).find((m) => m?.[1] === name)?.[2];
}

/** @param {{version_id: string, percentage: number}[]} versions */
function draw(versions) {
  let left = randomInt(1_000_000) / 10_000;
  for (const { version_id, percentage } of versions) {
    if (left < percentage) return version_id;
    left -= percentage;
  }
  return versions.find((v) => v.percentage > 0).version_id;
}

const HOP = new Set(["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect", "host"]);
const OWN = /^(x-edge-|mf-)/;
const REPLAYABLE = 1024 * 1024;

function forwarded(headers) {
  const kept = Object.fromEntries(Object.entries(headers).filter(([name]) => !HOP.has(name) && !OWN.test(name)));
  return { ...kept, "cf-connecting-ip": "127.0.0.1", "x-forwarded-proto": "http" };
}

function outgoing(raw) {
  const kept = [];
  for (let n = 0; n < raw.length; n += 2) {
    const name = raw[n].toLowerCase();
    if (!HOP.has(name) && !OWN.test(name)) kept.push([raw[n], raw[n + 1]]);
  }
  return kept;
}

/** Small bodies are read first, so that the request can be sent again if workerd dies under it. */
async function bodyOf(request) {
  if (["GET", "HEAD"].includes(request.method)) return null;
  const length = lengthOf(request.headers);
  if (length !== undefined && length <= REPLAYABLE) return request.bytes(REPLAYABLE);
  return length === undefined && !request.headers["transfer-encoding"] ? null : request.stream;
}

function lengthOf(headers) {
  return headers["content-length"] === undefined ? undefined : Number(headers["content-length"]);
}

function overrides(header) {
  if (header === undefined) return {};
  try {
    const value = JSON.parse(header);
    return value && typeof value === "object" && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
