// What a multipart upload of a Worker holds, checked: metadata, modules, bindings.

import { createHash } from "node:crypto";
import { compatibilityDate as newestDate } from "workerd";
import { ApiError } from "./envelope.mjs";
import { MODULE_TYPES } from "./workers.mjs";

export const SCRIPT_BYTES = 64 * 1024 * 1024;
const IGNORED_TYPES = new Set(["application/source-map", "application/json+sourcemap"]);

/** @param {string} message */
export function invalid(message) {
  return new ApiError(400, 10021, message);
}

/**
 * @param {Buffer} body
 * @param {string | undefined} contentType
 * @returns {Promise<{metadata: any, files: Map<string, Buffer>, modules: {name: string, content_type: string, size: number}[]}>}
 */
export async function parseUpload(body, contentType) {
  if (!contentType?.startsWith("multipart/form-data")) {
    throw new ApiError(415, 10015, `A Worker is uploaded as multipart/form-data, not as ${contentType ?? "a body without a type"}.`);
  }
  let form;
  try {
    form = await new Response(body, { headers: { "content-type": contentType } }).formData();
  } catch (error) {
    throw new ApiError(400, 10001, `The multipart body cannot be read: ${error.message}`);
  }
  const files = new Map();
  const modules = [];
  let metadata;
  for (const [field, part] of form) {
    if (field === "metadata") {
      metadata = await readMetadata(part);
      continue;
    }
    if (typeof part === "string") throw invalid(`The part "${field}" is a form field; a module is a file part with a name and a content type.`);
    const name = part.name && part.name !== "blob" ? part.name : field;
    const type = part.type.split(";")[0].trim().toLowerCase();
    if (IGNORED_TYPES.has(type)) continue;
    if (!MODULE_TYPES.has(type)) throw invalid(`The module "${name}" has the content type "${part.type}", which is no module type.`);
    if (!name || name.startsWith("/") || name.split("/").includes("..")) throw invalid(`"${name}" is no module name.`);
    if (files.has(name)) throw invalid(`Two modules are named "${name}".`);
    files.set(name, Buffer.from(await part.arrayBuffer()));
    modules.push({ name, content_type: type, size: files.get(name).length });
  }
  if (metadata === undefined) throw invalid('The upload has no part named "metadata".');
  const size = modules.reduce((sum, m) => sum + m.size, 0);
  if (size > SCRIPT_BYTES) throw new ApiError(413, 10027, `Your Worker exceeded the size limit of 64 MiB (its modules are ${size} bytes).`);
  return { metadata, files, modules };
}

async function readMetadata(part) {
  try {
    const value = JSON.parse(typeof part === "string" ? part : await part.text());
    if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("not an object");
    return value;
  } catch (error) {
    throw invalid(`The part "metadata" is not a JSON object: ${error.message}`);
  }
}

/** Checks what can be checked before running anything. */
export function checkMetadata(metadata, files) {
  if (metadata.body_part) throw invalid("The local edge runs module Workers only: send main_module, not body_part.");
  if (!metadata.main_module) throw invalid('metadata has no "main_module".');
  if (!files.has(metadata.main_module)) throw invalid(`No such module "${metadata.main_module}" among the uploaded parts.`);
  const date = metadata.compatibility_date ?? "2021-11-02";
  if (!/^\d{4}-\d{2}-\d{2}$/.test(date)) throw invalid(`"${date}" is no compatibility date (YYYY-MM-DD).`);
  if (date > newestDate) throw invalid(`The compatibility date ${date} is newer than this workerd, which knows dates until ${newestDate}.`);
  for (const key of ["assets", "migrations", "containers"]) {
    if (metadata[key] && Object.keys(metadata[key]).length > 0) throw invalid(`The local edge does not support "${key}".`);
  }
  const flags = metadata.compatibility_flags ?? [];
  if (!Array.isArray(flags) || flags.some((f) => typeof f !== "string")) throw invalid("compatibility_flags must be a list of strings.");
}

const SUPPORTED = new Set(["plain_text", "json", "secret_text", "kv_namespace", "r2_bucket", "version_metadata", "ratelimit", "inherit"]);

/**
 * Bindings as they are kept (without secret texts), and the secret texts apart.
 * @param {import("./store.mjs").State} state
 * @param {any} metadata
 * @param {{bindings: any[], secrets: Record<string, string>} | null} previous the newest version's
 */
export function resolveBindings(state, metadata, previous) {
  const given = metadata.bindings ?? [];
  if (!Array.isArray(given)) throw invalid("bindings must be a list.");
  const bindings = [];
  const secrets = {};
  for (const binding of given) {
    if (!binding?.name || !binding.type) throw invalid("Every binding needs a name and a type.");
    if (!SUPPORTED.has(binding.type)) throw invalid(`The local edge does not support bindings of type "${binding.type}" ("${binding.name}").`);
    if (bindings.some((b) => b.name === binding.name)) throw invalid(`Two bindings are named "${binding.name}".`);
    if (binding.type === "inherit") {
      inherit(binding.old_name ?? binding.name, binding.name);
    } else {
      checkBinding(state, binding);
      const { text, ...rest } = binding;
      if (binding.type === "secret_text") {
        secrets[binding.name] = String(text ?? "");
        bindings.push(rest);
      } else bindings.push({ ...binding });
    }
  }
  const kept = new Set(metadata.keep_bindings ?? []);
  for (const old of previous?.bindings ?? []) {
    if (kept.has(old.type) && !bindings.some((b) => b.name === old.name)) inherit(old.name, old.name);
  }
  return { bindings: bindings.sort((a, b) => (a.name < b.name ? -1 : 1)), secrets };

  function inherit(from, name) {
    const old = previous?.bindings.find((b) => b.name === from);
    if (!old) throw invalid(`The binding "${name}" inherits from "${from}", which the Worker does not have.`);
    checkBinding(state, old);
    bindings.push({ ...old, name });
    if (old.type === "secret_text") secrets[name] = previous.secrets[from] ?? "";
  }
}

function checkBinding(state, binding) {
  if (binding.type === "kv_namespace" && !state.namespaces[binding.namespace_id]) {
    throw new ApiError(400, 10041, `KV namespace '${binding.namespace_id}' not found.`);
  }
  if (binding.type === "r2_bucket") {
    const jurisdiction = binding.jurisdiction ?? "default";
    if (!state.buckets[`${jurisdiction}/${binding.bucket_name}`]) {
      const where = jurisdiction === "default" ? "" : ` in the jurisdiction '${jurisdiction}'`;
      throw new ApiError(400, 10085, `R2 bucket '${binding.bucket_name}' not found${where}.`);
    }
  }
  if (binding.type === "plain_text" && typeof binding.text !== "string") throw invalid(`The binding "${binding.name}" needs a text.`);
  if (binding.type === "plain_text" && Buffer.byteLength(binding.text) > 5 * 1024) throw invalid(`The text of "${binding.name}" is over 5 KB.`);
  if (binding.type === "ratelimit" && !(binding.simple?.limit > 0 && [10, 60].includes(binding.simple?.period))) {
    throw invalid(`The ratelimit "${binding.name}" needs simple: {limit, period: 10 or 60}.`);
  }
}

/** @param {Map<string, Buffer>} files */
export function etagOf(files) {
  const hash = createHash("sha256");
  for (const name of [...files.keys()].sort()) hash.update(name).update("\0").update(files.get(name)).update("\0");
  return hash.digest("hex");
}
