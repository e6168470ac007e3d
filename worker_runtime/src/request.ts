/** The body of `POST /infer`, checked. Pure. */

import type { Limits } from "./config";
import { HttpError, invalidRequest } from "./http";

export interface InferRequest {
  readonly texts: readonly string[];
  /** Whether the client sent `texts`, and so gets `results`. */
  readonly many: boolean;
  /** The task's own fields. */
  readonly fields: ReadonlyMap<string, unknown>;
}

function checkText(value: unknown, name: string, limit: number): string {
  const invalid = (message: string) => new HttpError(422, "invalid_text", message);
  if (typeof value !== "string") throw invalid(`${name} is not a string. Send the text to work on as a string.`);
  // A lone surrogate has no UTF-8 form: it becomes U+FFFD, as it would in any UTF-8 encoder.
  const text = value.toWellFormed();
  if (text.trim() === "") throw invalid(`${name} is empty. Send a text with at least one visible character.`);
  const size = new TextEncoder().encode(text).byteLength;
  if (size > limit) throw invalid(`${name} is ${size} bytes in UTF-8, more than ${limit}. Send a shorter text.`);
  return text;
}

function checkTexts(value: unknown, limits: Limits): readonly string[] {
  if (!Array.isArray(value)) throw invalidRequest('texts must be a list of strings. For one text send {"text": "..."}.');
  if (value.length === 0) throw invalidRequest("texts is an empty list. Send at least one text.");
  if (value.length > limits.texts) {
    throw new HttpError(422, "too_many_texts", `texts has ${value.length} items, more than ${limits.texts}. Send several requests.`);
  }
  return value.map((item, i) => checkText(item, `texts[${i}]`, limits.textBytes));
}

/** `taskFields` are the fields that the task knows. Raises HttpError 400 or 422 that names what is wrong. */
export function parseInferRequest(body: unknown, limits: Limits, taskFields: readonly string[]): InferRequest {
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    throw invalidRequest('The body must be a JSON object such as {"text": "..."} or {"texts": ["...", "..."]}.');
  }
  const fields = new Map<string, unknown>(Object.entries(body));
  const known = ["text", "texts", ...taskFields];
  for (const name of fields.keys()) {
    if (!known.includes(name)) {
      throw invalidRequest(`Unknown field ${JSON.stringify(name.slice(0, 64))}. This model takes ${known.join(", ")}.`);
    }
  }
  const many = fields.has("texts");
  if (many === fields.has("text")) {
    throw invalidRequest(many ? "Both text and texts are given. Send one of them." : 'The field text is missing. Send {"text": "..."}.');
  }
  const texts = many ? checkTexts(fields.get("texts"), limits) : [checkText(fields.get("text"), "text", limits.textBytes)];
  fields.delete("text");
  fields.delete("texts");
  return { texts, many, fields };
}
