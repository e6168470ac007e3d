// The little XML that S3 speaks.

const NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"';

/**
 * @param {string} name
 * @param {unknown | string[]} content text, or elements
 */
export function element(name, content) {
  return `<${name}>${Array.isArray(content) ? content.join("") : escape(String(content))}</${name}>`;
}

/** @param {number} status @param {string} root */
export function xml(status, root) {
  const named = root.startsWith("<Error>") ? root : root.replace(/^<(\w+)>/, `<$1${NAMESPACE}>`);
  return { status, headers: { "content-type": "application/xml" }, body: `<?xml version="1.0" encoding="UTF-8"?>\n${named}` };
}

/** @returns {{keys: string[], quiet: boolean}} of a DeleteObjects body */
export function parseDeletion(text) {
  const keys = [...text.matchAll(/<Object>([\s\S]*?)<\/Object>/g)].map((m) => field(m[1], "Key"));
  return { keys: keys.every((k) => k !== undefined) ? keys : [], quiet: field(text, "Quiet") === "true" };
}

/** @returns {{number: number, etag: string}[]} of a CompleteMultipartUpload body */
export function parseCompletion(text) {
  return [...text.matchAll(/<Part>([\s\S]*?)<\/Part>/g)].map((m) => ({
    number: Number(field(m[1], "PartNumber")),
    etag: (field(m[1], "ETag") ?? "").replaceAll('"', ""),
  }));
}

function field(text, name) {
  const match = new RegExp(`<${name}>([\\s\\S]*?)</${name}>`).exec(text);
  return match ? unescape(match[1]) : undefined;
}

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;" };

function escape(text) {
  return text.replace(/[&<>"']/g, (c) => ENTITIES[c]).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\r]/g, (c) => `&#${c.charCodeAt(0)};`);
}

function unescape(text) {
  return text.replace(/&(?:#x([0-9a-f]+)|#(\d+)|(\w+));/gi, (whole, hex, decimal, name) => {
    if (hex) return String.fromCodePoint(Number.parseInt(hex, 16));
    if (decimal) return String.fromCodePoint(Number(decimal));
    return Object.keys(ENTITIES).find((c) => ENTITIES[c] === `&${name};`) ?? whole;
  });
}
