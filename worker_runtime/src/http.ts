/** JSON over HTTP: answers, the errors a client may see, and reading a body under a byte limit. */

export type ErrorCode =
  | "invalid_json"
  | "invalid_request"
  | "not_found"
  | "method_not_allowed"
  | "body_too_large"
  | "invalid_text"
  | "too_many_texts"
  | "weights_unavailable"
  | "internal_error";

/** An answer that is an error. `message` reaches the client: it says what is wrong and what to send instead. */
export class HttpError extends Error {
  override readonly name = "HttpError";

  constructor(
    readonly status: number,
    readonly code: ErrorCode,
    message: string,
    readonly headers: Readonly<Record<string, string>> = {},
  ) {
    super(message);
  }
}

export const invalidRequest = (message: string): HttpError => new HttpError(400, "invalid_request", message);

const HEADERS = {
  "content-type": "application/json; charset=utf-8",
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
} as const;

export function json(value: unknown, status = 200, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(JSON.stringify(value), { status, headers: { ...HEADERS, ...headers } });
}

export function errorResponse(error: HttpError): Response {
  return json({ error: { code: error.code, message: error.message } }, error.status, error.headers);
}

function tooLarge(limit: number): HttpError {
  return new HttpError(413, "body_too_large", `The body is larger than ${limit} bytes. Send fewer or shorter texts.`);
}

/** A body up to this many times too large is read to its end: breaking off could reset the connection before the 413 arrives. */
const READ_ON = 4;

/**
 * The whole body, at most `limit` bytes.
 * Counted while streaming: `content-length` may be absent or wrong. Raises 413, and 400 when the client breaks off.
 */
async function readBytes(request: Request, limit: number): Promise<Uint8Array> {
  if (Number(request.headers.get("content-length") ?? "0") > READ_ON * limit) throw tooLarge(limit);
  if (request.body === null) return new Uint8Array(0);
  const parts: Uint8Array[] = [];
  let size = 0;
  const reader = request.body.getReader();
  while (size <= READ_ON * limit) {
    const { done, value } = await reader.read().catch(() => {
      throw new HttpError(400, "invalid_request", "The body ended before it was complete. Send it again.");
    });
    if (done) break;
    size += value.byteLength;
    if (size > limit) parts.length = 0;
    else parts.push(value);
  }
  if (size > limit) {
    await reader.cancel().catch(() => undefined);
    throw tooLarge(limit);
  }
  const bytes = new Uint8Array(size);
  let offset = 0;
  for (const part of parts) {
    bytes.set(part, offset);
    offset += part.byteLength;
  }
  return bytes;
}

/** The body as JSON, whatever `content-type` says. Raises 400 when it is not UTF-8 or not JSON, 413 over `limit`. */
export async function readJson(request: Request, limit: number): Promise<unknown> {
  const bytes = await readBytes(request, limit);
  const invalid = (message: string) => new HttpError(400, "invalid_json", message);
  if (bytes.byteLength === 0) throw invalid('The body is empty. Send JSON such as {"text": "..."}.');
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    throw invalid("The body is not valid UTF-8. Encode the JSON as UTF-8.");
  }
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    const reason = error instanceof Error ? error.message : "syntax error";
    throw invalid(`The body is not valid JSON: ${reason}. Send JSON such as {"text": "..."}.`);
  }
}
