// An uploaded version as miniflare wants it, and the trial run that every upload has to pass.

import { Miniflare } from "miniflare";
import { CF } from "./cf.mjs";

export const GATEWAY = "gateway";

/** MIME type of an uploaded part -> miniflare's module type. */
export const MODULE_TYPES = new Map([
  ["application/javascript+module", "ESModule"],
  ["text/javascript+module", "ESModule"],
  ["application/javascript", "CommonJS"],
  ["text/javascript", "CommonJS"],
  ["application/wasm", "CompiledWasm"],
  ["application/octet-stream", "Data"],
  ["text/plain", "Text"],
]);

/**
 * @param {import("./store.mjs").Store} store
 * @param {string} id
 * @param {{modules?: boolean}} [what] without modules, only the bindings (cheap)
 */
export function workerOptions(store, id, { modules = true } = {}) {
  const version = store.state.versions[id];
  const options = {
    name: id,
    compatibilityDate: version.compatibility_date,
    compatibilityFlags: version.compatibility_flags,
    ...bindingOptions(store, version, store.secrets[id] ?? {}),
  };
  if (modules) Object.assign(options, moduleOptions(version, (m) => store.getModule(m.sha256)));
  return options;
}

function moduleOptions(version, bytesOf) {
  const first = version.modules.filter((m) => m.name === version.main_module);
  const rest = version.modules.filter((m) => m.name !== version.main_module);
  const modules = [...first, ...rest].map((m) => {
    const bytes = bytesOf(m);
    const type = MODULE_TYPES.get(m.content_type);
    return { type, path: `/${m.name}`, contents: type === "Data" || type === "CompiledWasm" ? bytes : bytes.toString("utf8") };
  });
  return { modules, modulesRoot: "/" };
}

/** @param {Record<string, string>} secrets */
function bindingOptions(store, version, secrets) {
  const options = { bindings: {}, kvNamespaces: {}, r2Buckets: {}, ratelimits: {} };
  for (const binding of version.bindings) {
    const { name } = binding;
    if (binding.type === "plain_text") options.bindings[name] = binding.text;
    else if (binding.type === "json") options.bindings[name] = binding.json;
    else if (binding.type === "secret_text") options.bindings[name] = secrets[name] ?? "";
    else if (binding.type === "version_metadata") {
      options.bindings[name] = { id: version.id, tag: version.annotations["workers/tag"] ?? "", timestamp: version.created_on };
    } else if (binding.type === "kv_namespace") {
      options.kvNamespaces[name] = store.state.namespaces[binding.namespace_id]?.slot ?? "kv-removed";
    } else if (binding.type === "r2_bucket") {
      const bucket = store.state.buckets[`${binding.jurisdiction ?? "default"}/${binding.bucket_name}`];
      options.r2Buckets[name] = bucket?.slot ?? "r2-removed";
    } else if (binding.type === "ratelimit") {
      options.ratelimits[name] = { simple: binding.simple };
    }
  }
  return options;
}

/**
 * Starts the version alone in a workerd of its own.
 * @param {import("./store.mjs").Store} store
 * @param {import("./scripts.mjs").Version} version
 * @param {Map<string, Buffer>} files bytes by module name
 * @param {Record<string, string>} secrets
 * @returns {Promise<string | null>} workerd's complaint, or null when it starts
 */
export async function tryVersion(store, version, files, secrets) {
  let said = "";
  const { kvNamespaces, r2Buckets, ...rest } = bindingOptions(store, version, secrets);
  let mf;
  try {
    mf = new Miniflare({
      host: "127.0.0.1",
      port: 0,
      cf: CF,
      logRequests: false,
      name: "worker",
      compatibilityDate: version.compatibility_date,
      compatibilityFlags: version.compatibility_flags,
      ...rest,
      kvNamespaces: Object.keys(kvNamespaces),
      r2Buckets: Object.keys(r2Buckets),
      ...moduleOptions(version, (m) => files.get(m.name)),
      handleRuntimeStdio: (out, err) => {
        out.resume();
        err.setEncoding("utf8");
        err.on("data", (text) => (said += text));
      },
    });
    await mf.ready;
    return null;
  } catch (error) {
    return complaint(said || error?.message || String(error));
  } finally {
    await mf?.dispose().catch(() => {});
  }
}

/** workerd's words without its own prefixes. */
function complaint(text) {
  const lines = text
    .replace(/\u001b\[[0-9;]*m/g, "")
    .split("\n")
    .map((line) => line.replace(/^service core:user:\S+?:\s*/, ""))
    .filter((line) => line.trim() && !/^The Workers runtime failed|^Runtime stderr|^stack:|^workerd\/\S+:\d+: (info|warning)/.test(line.trim()));
  return lines.join("\n").slice(0, 4000) || "The Worker did not start.";
}
