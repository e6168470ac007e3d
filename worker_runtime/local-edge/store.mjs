// The edge's memory: one JSON file, one file of secrets, and module bytes by digest, under one folder.
// Every file is replaced whole (temporary file, fsync, rename), so a crash leaves the old or the new one.

import { createHash, randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";

const FORMAT = "edgespec.local-edge/v1";

/**
 * @typedef {object} State
 * @property {string} format
 * @property {Record<string, import("./scripts.mjs").Script>} scripts by name
 * @property {Record<string, import("./scripts.mjs").Version>} versions by id
 * @property {Record<string, {slot: string, name: string, jurisdiction: string, location: string, storage_class: string, creation_date: string}>} buckets by `<jurisdiction>/<name>`
 * @property {Record<string, {id: string, slot: string, title: string}>} namespaces by id
 * @property {Record<string, {bucket: string, key: string, initiated: string, parts: Record<string, {etag: string, md5: string, size: number, uploaded: string}>}>} uploads open multipart uploads, by id
 * @property {{r2: number, kv: number}} slots how many storage slots were ever handed out
 */

/** @returns {State} */
function empty() {
  return { format: FORMAT, scripts: {}, versions: {}, buckets: {}, namespaces: {}, uploads: {}, slots: { r2: 0, kv: 0 } };
}

export class Store {
  /** @param {string} dir the state folder; created with mode 0700 */
  constructor(dir) {
    this.dir = dir;
    fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
    fs.mkdirSync(this.#modules(), { recursive: true });
    for (const folder of [dir, this.#modules()]) {
      for (const name of fs.readdirSync(folder)) if (name.endsWith(".tmp")) fs.rmSync(path.join(folder, name), { force: true });
    }
    /** @type {State} */
    this.state = this.#read("state.json") ?? empty();
    if (this.state.format !== FORMAT) {
      throw new Error(`${path.join(dir, "state.json")} has the format ${this.state.format}; this edge reads ${FORMAT}`);
    }
    /** @type {Record<string, Record<string, string>>} secret values by version id, then by binding name */
    this.secrets = this.#read("secrets.json") ?? {};
  }

  /** Writes both files. Callers change `state` and `secrets` in one turn of the event loop, then save. */
  save() {
    replace(path.join(this.dir, "secrets.json"), JSON.stringify(this.secrets), 0o600);
    replace(path.join(this.dir, "state.json"), JSON.stringify(this.state), 0o600);
  }

  /** @param {Uint8Array} bytes @returns {string} the SHA-256 under which they are kept */
  putModule(bytes) {
    const digest = createHash("sha256").update(bytes).digest("hex");
    const file = path.join(this.#modules(), digest);
    if (!fs.existsSync(file)) replace(file, bytes, 0o600);
    return digest;
  }

  /** @param {string} digest @returns {Buffer} */
  getModule(digest) {
    return fs.readFileSync(path.join(this.#modules(), digest));
  }

  /** Removes modules that no version names any more. */
  sweepModules() {
    const used = new Set(Object.values(this.state.versions).flatMap((v) => v.modules.map((m) => m.sha256)));
    for (const name of fs.readdirSync(this.#modules())) {
      if (!used.has(name)) fs.rmSync(path.join(this.#modules(), name), { force: true });
    }
  }

  #modules() {
    return path.join(this.dir, "modules");
  }

  #read(name) {
    try {
      return JSON.parse(fs.readFileSync(path.join(this.dir, name), "utf8"));
    } catch (error) {
      if (error.code === "ENOENT") return undefined;
      throw new Error(`cannot read ${path.join(this.dir, name)}: ${error.message}`);
    }
  }
}

/**
 * @param {string} file
 * @param {string | Uint8Array} content
 * @param {number} mode
 */
export function replace(file, content, mode) {
  const temporary = `${file}.${randomBytes(6).toString("hex")}.tmp`;
  const handle = fs.openSync(temporary, "wx", mode);
  try {
    fs.writeFileSync(handle, content);
    fs.fsyncSync(handle);
  } finally {
    fs.closeSync(handle);
  }
  fs.renameSync(temporary, file);
}
