// Workers: scripts, versions, deployments, settings, secrets, workers.dev routes.

import { randomUUID, createHash } from "node:crypto";
import { ApiError, success, page } from "./envelope.mjs";
import { checkMetadata, etagOf, invalid, parseUpload, resolveBindings } from "./upload.mjs";
import { tryVersion } from "./workers.mjs";

const NAME = /^[a-z0-9_][a-z0-9_-]{0,62}$/;
const DEPLOYABLE = 100;
const AUTHOR = { author_id: "local", author_email: "local@edgespec.invalid" };

/**
 * @typedef {object} Deployment
 * @property {string} id
 * @property {string} created_on
 * @property {string} source
 * @property {"percentage"} strategy
 * @property {{version_id: string, percentage: number}[]} versions
 * @property {Record<string, string>} annotations
 *
 * @typedef {object} Script
 * @property {string} created_on
 * @property {string} modified_on
 * @property {string} tag
 * @property {{enabled: boolean, previews_enabled: boolean}} subdomain
 * @property {{tags: string[], logpush: boolean, observability: any, tail_consumers: any[]}} settings unversioned
 * @property {Deployment[]} deployments newest first
 * @property {string[]} versions ids, newest first
 *
 * @typedef {object} Version
 * @property {string} id
 * @property {number} number
 * @property {string} script
 * @property {string} created_on
 * @property {string} main_module
 * @property {{name: string, content_type: string, size: number, sha256: string}[]} modules
 * @property {any[]} bindings without secret texts
 * @property {string} compatibility_date
 * @property {string[]} compatibility_flags
 * @property {Record<string, string>} annotations
 * @property {any} limits
 * @property {any} placement
 * @property {string} etag
 * @property {"api" | "wrangler"} source
 */

export class Scripts {
  /**
   * @param {import("./store.mjs").Store} store
   * @param {import("./runtime.mjs").Runtime} runtime
   */
  constructor(store, runtime) {
    this.store = store;
    this.runtime = runtime;
  }

  /** @returns {[string, string, (r: import("./api.mjs").ApiRequest) => any][]} */
  routes() {
    const at = "/workers/scripts/:name";
    return [
      ["GET", "/workers/subdomain", () => success({ subdomain: "local" })],
      ["GET", "/workers/scripts", (r) => this.list(r)],
      ["PUT", at, (r) => this.put(r)],
      ["GET", at, (r) => this.content(r)],
      ["DELETE", at, (r) => this.remove(r)],
      ["GET", `${at}/content/v2`, (r) => this.content(r)],
      ["GET", `${at}/settings`, (r) => this.settings(r)],
      ["PATCH", `${at}/settings`, (r) => this.patchSettings(r)],
      ["GET", `${at}/script-settings`, (r) => success(this.script(r).settings)],
      ["PATCH", `${at}/script-settings`, (r) => this.patchScriptSettings(r)],
      ["GET", `${at}/versions`, (r) => this.listVersions(r)],
      ["POST", `${at}/versions`, (r) => this.postVersion(r)],
      ["GET", `${at}/versions/:id`, (r) => success(this.describeVersion(this.version(r), { full: true }))],
      ["GET", `${at}/deployments`, (r) => success({ deployments: this.script(r).deployments.map(describeDeployment) })],
      ["POST", `${at}/deployments`, (r) => this.postDeployment(r)],
      ["GET", `${at}/deployments/:id`, (r) => this.getDeployment(r)],
      ["GET", `${at}/subdomain`, (r) => success(this.script(r).subdomain)],
      ["POST", `${at}/subdomain`, (r) => this.postSubdomain(r)],
      ["DELETE", `${at}/subdomain`, (r) => this.deleteSubdomain(r)],
      ["GET", `${at}/secrets`, (r) => this.listSecrets(r)],
      ["PUT", `${at}/secrets`, (r) => this.putSecret(r)],
      ["GET", `${at}/secrets/:secret`, (r) => this.getSecret(r)],
      ["DELETE", `${at}/secrets/:secret`, (r) => this.deleteSecret(r)],
      ["GET", `${at}/schedules`, (r) => (this.script(r), success({ schedules: [] }))],
      ["GET", `${at}/tails`, (r) => (this.script(r), success([]))],
      ["GET", "/workers/services/:name", (r) => this.service(r)],
      ["GET", "/workers/services/:name/environments/production", (r) => this.service(r)],
      ["GET", "/workers/services/:name/environments/production/content", (r) => this.content(r)],
      ["DELETE", "/workers/services/:name", (r) => this.remove(r)],
      ["GET", `${at}/references`, (r) => (this.script(r), success({ services: { incoming: [], outgoing: [] }, durable_objects: [], dispatch_outbounds: [] }))],
      ["GET", "/workers/tails/by-consumer/:name", () => success([])],
      ["GET", "/workers/domains", () => success([])],
      ["GET", "/workers/durable_objects/namespaces", () => success([])],
      ["GET", "/workers/workers", (r) => this.workers(r)],
      ["GET", "/workers/workers/:name", (r) => this.worker(r)],
    ];
  }

  script({ params }) {
    const script = Object.hasOwn(this.store.state.scripts, params.name) ? this.store.state.scripts[params.name] : undefined;
    if (!script) throw new ApiError(404, 10007, "This Worker does not exist on your account.");
    return script;
  }

  version({ params }) {
    this.script({ params });
    const version = Object.hasOwn(this.store.state.versions, params.id) ? this.store.state.versions[params.id] : undefined;
    if (!version || version.script !== params.name) throw new ApiError(404, 100146, "The version that was specified could not be found.");
    return version;
  }

  list({ query }) {
    // "tag:yes,other:no"; a tag may hold colons itself.
    const pairs = (query.get("tags") ?? "").split(",").filter(Boolean);
    const wanted = pairs.map((pair) => [pair.slice(0, pair.lastIndexOf(":")), pair.slice(pair.lastIndexOf(":") + 1)]);
    const items = Object.keys(this.store.state.scripts)
      .sort()
      .filter((name) => wanted.every(([tag, yes]) => this.store.state.scripts[name].settings.tags.includes(tag) === (yes !== "no")))
      .map((name) => this.describeScript(name));
    return success(items);
  }

  async put(request) {
    const { name } = request.params;
    checkName(name);
    const { version, files, secrets, metadata } = await this.prepare(request, { mustExist: false });
    const script = this.store.state.scripts[name] ?? newScript(version.created_on);
    const undo = this.snapshot(name);
    this.store.state.scripts[name] = script;
    this.record(script, version, files, secrets);
    if (Array.isArray(metadata.tags)) script.settings.tags = metadata.tags;
    if (metadata.observability !== undefined) script.settings.observability = metadata.observability;
    if (metadata.logpush !== undefined) script.settings.logpush = Boolean(metadata.logpush);
    if (Array.isArray(metadata.tail_consumers)) script.settings.tail_consumers = metadata.tail_consumers;
    this.deploy(script, [{ version_id: version.id, percentage: 100 }], version.annotations);
    await this.commit(undo);
    // The real API calls the new version's id, without hyphens, "deployment_id" here; wrangler relies on it.
    const deployment_id = version.id.replaceAll("-", "");
    return success({ ...this.describeScript(name), deployment_id, entry_point: version.main_module });
  }

  async postVersion(request) {
    const script = this.script(request);
    const { version, files, secrets } = await this.prepare(request, { mustExist: true });
    const undo = this.snapshot(request.params.name);
    this.record(script, version, files, secrets);
    await this.commit(undo);
    return success(this.describeVersion(version, { full: true }));
  }

  /** Reads an upload and tries it; changes nothing. */
  async prepare(request, { mustExist }) {
    const { name } = request.params;
    const { metadata, files, modules } = await parseUpload(await request.bytes(), request.headers["content-type"]);
    checkMetadata(metadata, files);
    const before = mustExist ? this.script(request) : this.store.state.scripts[name];
    const { bindings, secrets } = resolveBindings(this.store.state, metadata, this.previous(before));
    const version = {
      id: randomUUID(),
      number: 0,
      script: name,
      created_on: now(),
      main_module: metadata.main_module,
      modules: modules.map((m) => ({ ...m, sha256: createHash("sha256").update(files.get(m.name)).digest("hex") })),
      bindings,
      compatibility_date: metadata.compatibility_date ?? "2021-11-02",
      compatibility_flags: metadata.compatibility_flags ?? [],
      annotations: { ...(metadata.annotations ?? {}), "workers/triggered_by": mustExist ? "version_upload" : "upload" },
      limits: metadata.limits ?? {},
      placement: metadata.placement ?? {},
      etag: etagOf(files),
      source: /wrangler/i.test(request.headers["user-agent"] ?? "") ? "wrangler" : "api",
    };
    const complaint = await tryVersion(this.store, version, files, secrets);
    if (complaint) throw invalid(complaint);
    return { version, files, secrets, metadata };
  }

  previous(script) {
    const id = script?.versions[0];
    return id ? { bindings: this.store.state.versions[id].bindings, secrets: this.store.secrets[id] ?? {} } : null;
  }

  /** Adds a version; forgets undeployed ones beyond the last hundred. */
  record(script, version, files, secrets) {
    for (const bytes of files.values()) this.store.putModule(bytes);
    const { versions } = this.store.state;
    version.number = Math.max(0, ...script.versions.map((id) => versions[id].number)) + 1;
    versions[version.id] = version;
    if (Object.keys(secrets).length > 0) this.store.secrets[version.id] = secrets;
    script.versions = [version.id, ...script.versions];
    script.modified_on = version.created_on;
    const deployed = new Set(script.deployments[0]?.versions.map((v) => v.version_id));
    for (const id of script.versions.slice(DEPLOYABLE)) {
      if (deployed.has(id)) continue;
      script.versions = script.versions.filter((v) => v !== id);
      delete versions[id];
      delete this.store.secrets[id];
    }
  }

  deploy(script, versions, annotations) {
    const deployment = { id: randomUUID(), created_on: now(), source: "api", strategy: "percentage", versions, annotations };
    script.deployments = [deployment, ...script.deployments].slice(0, DEPLOYABLE);
    script.modified_on = deployment.created_on;
    return deployment;
  }

  /** A function that puts one script back as it is now. */
  snapshot(name) {
    const { scripts, versions } = this.store.state;
    const script = scripts[name] ? structuredClone(scripts[name]) : undefined;
    const before = new Map((script?.versions ?? []).map((id) => [id, [versions[id], this.store.secrets[id]]]));
    return () => {
      for (const id of scripts[name]?.versions ?? []) if (!before.has(id)) (delete versions[id], delete this.store.secrets[id]);
      for (const [id, [version, secrets]] of before) {
        versions[id] = version;
        if (secrets) this.store.secrets[id] = secrets;
      }
      if (script) scripts[name] = script;
      else delete scripts[name];
    };
  }

  /** Loads what is deployed, then writes the state; undoes the change when workerd refuses it. */
  async commit(undo) {
    try {
      await this.runtime.ensure();
    } catch (error) {
      undo();
      this.store.save();
      throw invalid(`The Worker could not be loaded: ${error.message}`);
    }
    this.store.save();
    this.store.sweepModules();
  }

  async remove(request) {
    const { name } = request.params;
    const script = this.script(request);
    for (const id of script.versions) {
      delete this.store.state.versions[id];
      delete this.store.secrets[id];
    }
    delete this.store.state.scripts[name];
    this.store.save();
    this.store.sweepModules();
    return success(null);
  }

  /** The newest deployment's main version: what settings and content are about. */
  current(request) {
    const script = this.script(request);
    const deployed = [...(script.deployments[0]?.versions ?? [])].sort((a, b) => b.percentage - a.percentage)[0];
    return this.store.state.versions[deployed?.version_id ?? script.versions[0]];
  }

  async content(request) {
    const version = this.current(request);
    const form = new FormData();
    for (const module of version.modules) {
      form.append(module.name, new File([this.store.getModule(module.sha256)], module.name, { type: module.content_type }));
    }
    const response = new Response(form);
    return {
      status: 200,
      headers: { "content-type": response.headers.get("content-type"), "cf-entrypoint": version.main_module, etag: version.etag },
      body: Buffer.from(await response.arrayBuffer()),
    };
  }

  settings(request) {
    const version = this.current(request);
    const { settings } = this.script(request);
    return success({
      bindings: version.bindings,
      compatibility_date: version.compatibility_date,
      compatibility_flags: version.compatibility_flags,
      annotations: version.annotations,
      limits: version.limits,
      placement: version.placement,
      usage_model: "standard",
      migrations: { tag: null },
      migration_tag: null,
      ...settings,
    });
  }

  /** Bindings, dates, limits and placement are versioned, so this uploads a version with the same code and deploys it. */
  async patchSettings(request) {
    const { name } = request.params;
    const form = request.headers["content-type"]?.startsWith("multipart/form-data");
    const change = form ? await settingsPart(await request.bytes(), request.headers["content-type"]) : await request.json();
    const script = this.script(request);
    const current = this.current(request);
    const secretsBefore = this.store.secrets[current.id] ?? {};
    const resolved = change.bindings
      ? resolveBindings(this.store.state, change, { bindings: current.bindings, secrets: secretsBefore })
      : { bindings: current.bindings, secrets: secretsBefore };
    const undo = this.snapshot(name);
    for (const key of ["tags", "logpush", "observability", "tail_consumers"]) if (change[key] !== undefined) script.settings[key] = change[key];
    if (["bindings", "compatibility_date", "compatibility_flags", "limits", "placement"].some((key) => change[key] !== undefined)) {
      const { bindings, secrets } = resolved;
      const picked = Object.fromEntries(Object.entries(change).filter(([key]) => ["compatibility_date", "compatibility_flags", "limits", "placement"].includes(key)));
      await this.reissue(script, current, { ...picked, bindings }, secrets, change.annotations ?? {}, undo);
    } else this.store.save();
    return this.settings(request);
  }

  /** A new version of the same code with other settings, deployed at 100 %. */
  async reissue(script, current, change, secrets, annotations, undo) {
    const files = new Map(current.modules.map((m) => [m.name, this.store.getModule(m.sha256)]));
    const version = { ...structuredClone(current), ...change, id: randomUUID(), created_on: now(), annotations };
    checkMetadata(version, files);
    const complaint = await tryVersion(this.store, version, files, secrets);
    if (complaint) {
      undo();
      throw invalid(complaint);
    }
    this.record(script, version, files, secrets);
    this.deploy(script, [{ version_id: version.id, percentage: 100 }], annotations);
    await this.commit(undo);
  }

  async patchScriptSettings(request) {
    const change = await request.json();
    const { settings } = this.script(request);
    for (const key of ["tags", "logpush", "observability", "tail_consumers"]) if (change[key] !== undefined) settings[key] = change[key];
    settings.tags ??= [];
    settings.tail_consumers ??= [];
    this.store.save();
    return success(settings);
  }

  listVersions(request) {
    const { versions } = this.store.state;
    const all = this.script(request).versions.map((id) => this.describeVersion(versions[id]));
    const cut = page(request.query.get("deployable") === "true" ? all.slice(0, DEPLOYABLE) : all, request.query, { perPage: 10 });
    return success({ items: cut.items }, { info: cut.info });
  }

  async postDeployment(request) {
    const script = this.script(request);
    const body = await request.json();
    if (body.strategy !== "percentage") throw new ApiError(400, 100124, 'The only strategy is "percentage".');
    const split = checkSplit(script, body.versions);
    const undo = this.snapshot(request.params.name);
    const deployment = this.deploy(script, split, { ...(body.annotations ?? {}), "workers/triggered_by": "deployment" });
    await this.commit(undo);
    return success(describeDeployment(deployment));
  }

  getDeployment(request) {
    const found = this.script(request).deployments.find((d) => d.id === request.params.id);
    if (!found) throw new ApiError(404, 100145, "The deployment that was specified could not be found.");
    return success(describeDeployment(found));
  }

  async postSubdomain(request) {
    const script = this.script(request);
    const { enabled, previews_enabled } = await request.json();
    if (typeof enabled !== "boolean") throw new ApiError(400, 10001, '"enabled" must be true or false.');
    script.subdomain = { enabled, previews_enabled: previews_enabled ?? enabled };
    this.store.save();
    return success(script.subdomain);
  }

  deleteSubdomain(request) {
    this.script(request).subdomain = { enabled: false, previews_enabled: false };
    this.store.save();
    return success(this.script(request).subdomain);
  }

  listSecrets(request) {
    return success(this.current(request).bindings.filter((b) => b.type === "secret_text").map(({ name }) => ({ name, type: "secret_text" })));
  }

  getSecret(request) {
    const { secret } = request.params;
    if (!this.current(request).bindings.some((b) => b.type === "secret_text" && b.name === secret)) throw noSecret(secret);
    return success({ name: secret, type: "secret_text" });
  }

  async putSecret(request) {
    const { name, text, type = "secret_text" } = await request.json();
    if (typeof name !== "string" || name === "" || typeof text !== "string" || type !== "secret_text") {
      throw new ApiError(400, 10001, "A secret is {name, text, type: \"secret_text\"}.");
    }
    const current = this.current(request);
    if (current.bindings.some((b) => b.name === name && b.type !== "secret_text")) {
      throw new ApiError(400, 10053, `Binding name '${name}' already in use. Please use a different name and try again.`);
    }
    const bindings = [...current.bindings.filter((b) => b.name !== name), { name, type: "secret_text" }].sort((a, b) => (a.name < b.name ? -1 : 1));
    await this.withSecrets(request, bindings, { ...(this.store.secrets[current.id] ?? {}), [name]: text });
    return success({ name, type: "secret_text" });
  }

  async deleteSecret(request) {
    const { secret } = request.params;
    const current = this.current(request);
    if (!current.bindings.some((b) => b.type === "secret_text" && b.name === secret)) throw noSecret(secret);
    const { [secret]: _gone, ...secrets } = this.store.secrets[current.id] ?? {};
    await this.withSecrets(request, current.bindings.filter((b) => b.name !== secret), secrets);
    return success(null);
  }

  async withSecrets(request, bindings, secrets) {
    const script = this.script(request);
    const annotations = { "workers/triggered_by": "secret" };
    await this.reissue(script, this.current(request), { bindings }, secrets, annotations, this.snapshot(request.params.name));
  }

  service(request) {
    const { name } = request.params;
    const script = this.script(request);
    const environment = { environment: "production", created_on: script.created_on, modified_on: script.modified_on, script: this.describeScript(name) };
    return success({ id: name, default_environment: environment, environments: [environment], created_on: script.created_on, modified_on: script.modified_on });
  }

  /** The newer "workers" resource, of which wrangler reads the subdomain. */
  worker(request) {
    return success(this.describeWorker(request.params.name, this.script(request)));
  }

  workers({ query }) {
    const names = Object.keys(this.store.state.scripts).sort();
    const { items, info } = page(names, query, { perPage: 10, most: 100 });
    return success(items.map((name) => this.describeWorker(name, this.store.state.scripts[name])), { info });
  }

  describeWorker(name, { tag, created_on, modified_on, deployments, subdomain, settings }) {
    const references = { workers: [], durable_objects: [], queues: [], domains: [], dispatch_namespace_outbounds: [] };
    const deployed_on = deployments[0]?.created_on ?? null;
    return { id: tag, name, created_on, updated_on: modified_on, deployed_on, subdomain, references, ...settings };
  }

  describeScript(name) {
    const script = this.store.state.scripts[name];
    const version = this.current({ params: { name } });
    return {
      id: name,
      tag: script.tag,
      etag: version.etag,
      handlers: ["fetch"],
      has_assets: false,
      has_modules: true,
      created_on: script.created_on,
      modified_on: script.modified_on,
      compatibility_date: version.compatibility_date,
      compatibility_flags: version.compatibility_flags,
      usage_model: "standard",
      last_deployed_from: version.source,
      placement: version.placement,
      ...script.settings,
      migration_tag: null,
      routes: null,
    };
  }

  describeVersion(version, { full = false } = {}) {
    const { subdomain } = this.store.state.scripts[version.script];
    const summary = {
      id: version.id,
      number: version.number,
      metadata: { created_on: version.created_on, modified_on: version.created_on, source: version.source, hasPreview: subdomain.previews_enabled, ...AUTHOR },
      annotations: version.annotations,
    };
    if (!full) return summary;
    const { compatibility_date, compatibility_flags, limits } = version;
    return {
      ...summary,
      resources: {
        bindings: version.bindings,
        script: { etag: version.etag, handlers: ["fetch"], last_deployed_from: version.source, placement: version.placement },
        script_runtime: { compatibility_date, compatibility_flags, limits, usage_model: "standard" },
      },
    };
  }
}

function newScript(created_on) {
  return {
    created_on,
    modified_on: created_on,
    tag: randomUUID().replaceAll("-", ""),
    subdomain: { enabled: false, previews_enabled: false },
    settings: { tags: [], logpush: false, observability: null, tail_consumers: [] },
    deployments: [],
    versions: [],
  };
}

function describeDeployment(deployment) {
  return { ...deployment, author_email: AUTHOR.author_email };
}

function checkName(name) {
  if (!NAME.test(name)) {
    throw new ApiError(400, 10016, "Script names may only contain lowercase letters, numbers, underscores, and dashes, at most 63 of them.");
  }
}

function checkSplit(script, versions) {
  if (!Array.isArray(versions) || versions.length < 1 || versions.length > 2) {
    throw new ApiError(400, 100122, "A deployment names one or two versions.");
  }
  const split = versions.map(({ version_id, percentage }) => ({ version_id, percentage }));
  for (const { version_id, percentage } of split) {
    if (!script.versions.includes(version_id)) throw new ApiError(400, 100146, `The version ${version_id} is not one of the last ${DEPLOYABLE} of this Worker.`);
    if (typeof percentage !== "number" || !(percentage >= 0 && percentage <= 100)) throw new ApiError(400, 100123, "A percentage is a number from 0 to 100.");
  }
  if (new Set(split.map((v) => v.version_id)).size !== split.length) throw new ApiError(400, 100122, "A deployment names each version once.");
  const sum = split.reduce((total, v) => total + v.percentage, 0);
  if (Math.abs(sum - 100) > 1e-6) throw new ApiError(400, 100123, `The percentages add up to ${sum}, not to 100.`);
  return split;
}

async function settingsPart(body, contentType) {
  const form = await new Response(body, { headers: { "content-type": contentType } }).formData();
  const part = form.get("settings");
  if (part === null) throw new ApiError(400, 10001, 'The form has no part named "settings".');
  try {
    return JSON.parse(typeof part === "string" ? part : await part.text());
  } catch (error) {
    throw new ApiError(400, 10001, `The part "settings" is not JSON: ${error.message}`);
  }
}

function noSecret(name) {
  return new ApiError(404, 10056, `The secret "${name}" does not exist.`);
}

function now() {
  return new Date().toISOString();
}
