// AWS Signature Version 4, the verifying side, for headers and for presigned addresses.

import { createHash, createHmac, timingSafeEqual } from "node:crypto";

const SKEW_MS = 15 * 60 * 1000;

/** Why a request is refused, in S3's words. */
export class SignatureError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * @param {{method: string, path: string, query: string, headers: import("node:http").IncomingHttpHeaders}} request path and query as sent
 * @param {{access_key_id: string, secret_access_key: string}} keys
 * @param {number} now milliseconds
 * @returns {string} the payload hash that was signed: hex, UNSIGNED-PAYLOAD or STREAMING-...
 */
export function verify(request, keys, now) {
  const signed = request.headers.authorization ? fromHeader(request) : fromQuery(request, now);
  if (signed.accessKey !== keys.access_key_id) {
    throw new SignatureError(403, "InvalidAccessKeyId", "The access key id is not that of this edge.");
  }
  const [date, region, service, end] = signed.scope;
  if (service !== "s3" || end !== "aws4_request" || date !== signed.date.slice(0, 8)) {
    throw new SignatureError(400, "AuthorizationHeaderMalformed", "The credential's scope must be <date>/auto/s3/aws4_request.");
  }
  if (!signed.presigned && Math.abs(now - parseDate(signed.date)) > SKEW_MS) {
    throw new SignatureError(403, "RequestTimeTooSkewed", "The request's time differs from this machine's by more than 15 minutes.");
  }
  if (!signed.names.includes("host")) throw new SignatureError(403, "AccessDenied", "The header host must be signed.");
  const canonicalHeaders = signed.names.map((name) => `${name}:${String(request.headers[name] ?? "").trim().replace(/\s+/g, " ")}\n`).join("");
  const key = ["AWS4" + keys.secret_access_key, date, region, service, end].reduce((k, part) => createHmac("sha256", k).update(part).digest());
  const given = Buffer.from(signed.signature, "hex");
  const matches = [request.path, encodePath(request.path)].some((path) => {
    const canonical = [request.method, path, canonicalQuery(request.query), canonicalHeaders, signed.names.join(";"), signed.payload].join("\n");
    const text = ["AWS4-HMAC-SHA256", signed.date, signed.scope.join("/"), createHash("sha256").update(canonical).digest("hex")].join("\n");
    const expected = createHmac("sha256", key).update(text).digest();
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
  if (!matches) {
    throw new SignatureError(403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your secret access key and signing method.");
  }
  return signed.payload;
}

function fromHeader({ headers }) {
  const match = /^AWS4-HMAC-SHA256\s+Credential=([^,\s]+),\s*SignedHeaders=([^,\s]+),\s*Signature=([0-9a-f]+)$/.exec(headers.authorization.trim());
  if (!match) throw new SignatureError(400, "AuthorizationHeaderMalformed", "The authorization header is not AWS4-HMAC-SHA256.");
  const [accessKey, ...scope] = match[1].split("/");
  const payload = headers["x-amz-content-sha256"];
  if (!payload) throw new SignatureError(400, "InvalidRequest", "The header x-amz-content-sha256 is missing.");
  return { accessKey, scope, names: match[2].split(";"), signature: match[3], date: String(headers["x-amz-date"] ?? ""), payload, presigned: false };
}

function fromQuery({ query }, now) {
  const get = new URLSearchParams(query);
  if (get.get("X-Amz-Algorithm") !== "AWS4-HMAC-SHA256" || !get.get("X-Amz-Signature")) {
    throw new SignatureError(403, "AccessDenied", "The request is not signed.");
  }
  const date = get.get("X-Amz-Date") ?? "";
  const seconds = Number(get.get("X-Amz-Expires"));
  if (!(seconds > 0 && seconds <= 604800)) throw new SignatureError(400, "AuthorizationQueryParametersError", "X-Amz-Expires is 1 to 604800 seconds.");
  if (now > parseDate(date) + seconds * 1000) throw new SignatureError(403, "AccessDenied", "Request has expired.");
  const [accessKey, ...scope] = (get.get("X-Amz-Credential") ?? "").split("/");
  return { accessKey, scope, names: (get.get("X-Amz-SignedHeaders") ?? "").split(";"), signature: get.get("X-Amz-Signature"), date, payload: "UNSIGNED-PAYLOAD", presigned: true };
}

function parseDate(text) {
  const m = /^(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})Z$/.exec(text);
  if (!m) throw new SignatureError(403, "AccessDenied", "x-amz-date must look like 20260101T000000Z.");
  return Date.UTC(+m[1], +m[2] - 1, +m[3], +m[4], +m[5], +m[6]);
}

function canonicalQuery(query) {
  return query
    .split("&")
    .filter((pair) => pair && !pair.startsWith("X-Amz-Signature="))
    .map((pair) => {
      const at = pair.indexOf("=");
      return [at < 0 ? pair : pair.slice(0, at), at < 0 ? "" : pair.slice(at + 1)].map((part) => encode(decode(part)));
    })
    .sort(([a, x], [b, y]) => (a < b ? -1 : a > b ? 1 : x < y ? -1 : 1))
    .map((pair) => pair.join("="))
    .join("&");
}

function encodePath(path) {
  return path.split("/").map((part) => encode(decode(part))).join("/");
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function encode(text) {
  return encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}
