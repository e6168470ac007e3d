// The first Worker in workerd: the only door to every bucket, namespace and uploaded Worker.
// The Node side names an operation in a header; bodies stream through without being held.

import { WorkerEntrypoint } from "cloudflare:workers";

const OWN = /^(x-edge-|mf-)/;

const operations = {
  async worker(call, request, env) {
    const headers = new Headers(request.headers);
    for (const name of [...headers.keys()]) if (OWN.test(name)) headers.delete(name);
    if (call.host) headers.set("host", call.host);
    const target = env[call.worker];
    if (target === undefined) return failed({ code: 1042, message: "no such Worker is loaded" });
    const forwarded = new Request(call.url, { method: request.method, headers, body: request.body, redirect: "manual", cf: request.cf });
    try {
      return await target.fetch(forwarded);
    } catch (error) {
      return failed({ code: 1101, message: error?.message ?? String(error), stack: error?.stack });
    }
  },

  async "kv.get"({ slot, key }, _request, env) {
    const { value, metadata } = await env[slot].getWithMetadata(key, "stream");
    if (value === null) return missing();
    const listed = (await env[slot].list({ prefix: key, limit: 1 })).keys[0];
    const expiration = listed?.name === key ? listed.expiration : undefined;
    return described({ metadata, expiration }, value);
  },
  async "kv.put"({ slot, key, options }, request, env) {
    await env[slot].put(key, request.body ?? new ArrayBuffer(0), options);
    return described({});
  },
  async "kv.delete"({ slot, keys }, _request, env) {
    await Promise.all(keys.map((key) => env[slot].delete(key)));
    return described({});
  },
  async "kv.list"({ slot, options }, _request, env) {
    return described({}, JSON.stringify(await env[slot].list(options)));
  },
  async "kv.clear"({ slot }, _request, env) {
    for (;;) {
      const { keys } = await env[slot].list({ limit: 500 });
      if (keys.length === 0) return described({});
      await Promise.all(keys.map(({ name }) => env[slot].delete(name)));
    }
  },

  async "r2.head"({ slot, key }, _request, env) {
    const object = await env[slot].head(key);
    return object === null ? missing() : described(summary(object));
  },
  async "r2.get"({ slot, key, range }, _request, env) {
    const object = await env[slot].get(key, range ? { range } : {});
    return object === null ? missing() : described({ ...summary(object), range: object.range }, object.body);
  },
  async "r2.put"({ slot, key, options, onlyIf }, request, env) {
    const conditions = onlyIf ? { onlyIf: new Headers(onlyIf) } : {};
    const object = await env[slot].put(key, request.body ?? new ArrayBuffer(0), { ...options, ...conditions });
    return object === null ? failed({ code: 10031, message: "precondition failed" }) : described(summary(object));
  },
  async "r2.delete"({ slot, keys }, _request, env) {
    await env[slot].delete(keys);
    return described({});
  },
  async "r2.list"({ slot, options }, _request, env) {
    const { objects, truncated, cursor, delimitedPrefixes } = await env[slot].list(options);
    return described({}, JSON.stringify({ objects: objects.map(summary), truncated, cursor, delimitedPrefixes }));
  },
  async "r2.create-upload"({ slot, key, options }, _request, env) {
    return described({ uploadId: (await env[slot].createMultipartUpload(key, options)).uploadId });
  },
  async "r2.upload-part"({ slot, key, uploadId, part }, request, env) {
    const uploaded = await env[slot].resumeMultipartUpload(key, uploadId).uploadPart(part, request.body ?? new ArrayBuffer(0));
    return described({ etag: uploaded.etag });
  },
  async "r2.complete-upload"({ slot, key, uploadId }, request, env) {
    const parts = await request.json();
    return described(summary(await env[slot].resumeMultipartUpload(key, uploadId).complete(parts)));
  },
  async "r2.abort-upload"({ slot, key, uploadId }, _request, env) {
    await env[slot].resumeMultipartUpload(key, uploadId).abort();
    return described({});
  },
};

function summary(object) {
  return {
    key: object.key,
    size: object.size,
    etag: object.etag,
    uploaded: object.uploaded.toISOString(),
    httpMetadata: { ...object.httpMetadata, cacheExpiry: object.httpMetadata?.cacheExpiry?.toISOString() },
    customMetadata: object.customMetadata,
    checksums: object.checksums?.toJSON?.() ?? {},
  };
}

function described(data, body = null) {
  return new Response(body, { headers: { "x-edge-data": encodeURIComponent(JSON.stringify(data)) } });
}

function missing() {
  return new Response(null, { status: 404, headers: { "x-edge-missing": "1" } });
}

function failed(error) {
  const text = JSON.stringify({ ...error, message: String(error.message).slice(0, 2000), stack: error.stack?.slice(0, 2000) });
  return new Response(null, { status: 500, headers: { "x-edge-error": encodeURIComponent(text) } });
}

export default class extends WorkerEntrypoint {
  async fetch(request) {
    if (request.headers.get("x-edge-secret") !== this.env.EDGE_SECRET) return new Response("Not found", { status: 404 });
    const call = JSON.parse(decodeURIComponent(request.headers.get("x-edge-call")));
    try {
      return await operations[call.op](call, request, this.env);
    } catch (error) {
      const code = /\((\d{5,6})\)\s*$/.exec(error?.message ?? "")?.[1];
      return failed({ code: code ? Number(code) : 10001, message: error?.message ?? String(error) });
    }
  }
}
