// Cloudflare's v4 envelope: {success, errors, messages, result, result_info}.

/** An answer that is not a success. `status` and `code` are those of the real API where they are known. */
export class ApiError extends Error {
  /**
   * @param {number} status HTTP status
   * @param {number} code Cloudflare's error code
   * @param {string} message
   */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * @typedef {object} Answer
 * @property {number} status
 * @property {Record<string, string>} [headers]
 * @property {string | Uint8Array | import("node:stream").Readable | null} [body]
 */

/**
 * @param {unknown} result
 * @param {{status?: number, info?: object, messages?: object[]}} [more]
 * @returns {Answer}
 */
export function success(result, { status = 200, info, messages = [] } = {}) {
  const body = { success: true, errors: [], messages, result, ...(info ? { result_info: info } : {}) };
  return json(status, body);
}

/**
 * @param {number} status
 * @param {{code: number, message: string}[]} errors
 * @returns {Answer}
 */
export function failure(status, errors) {
  return json(status, { success: false, errors, messages: [], result: null });
}

/**
 * @param {number} status
 * @param {unknown} value
 * @returns {Answer}
 */
export function json(status, value) {
  return { status, headers: { "content-type": "application/json" }, body: JSON.stringify(value) };
}

/** Cuts `items` to the asked page and describes it as `result_info` does. */
export function page(items, query, { perPage = 100, most = 1000 } = {}) {
  const size = Math.min(positive(query.get("per_page"), perPage), most);
  const number = positive(query.get("page"), 1);
  const cut = items.slice((number - 1) * size, number * size);
  const info = {
    page: number,
    per_page: size,
    count: cut.length,
    total_count: items.length,
    total_pages: Math.max(1, Math.ceil(items.length / size)),
  };
  return { items: cut, info };
}

function positive(text, otherwise) {
  const value = Number.parseInt(text ?? "", 10);
  return Number.isFinite(value) && value > 0 ? value : otherwise;
}
