/** Text to token ids, exactly as Python `tokenizers` does with truncation on and padding off. */

import { Tokenizer as HuggingFaceTokenizer } from "@huggingface/tokenizers";
import { type BertNormalization, bertNormalize } from "./bert-normalizer";
import type { Encoding } from "./engines/engine";

export interface Tokens extends Encoding {
  /** Tokens after truncation, special tokens included. */
  readonly count: number;
  /** Whether tokens were dropped from the end. */
  readonly truncated: boolean;
}

export interface Tokenizer {
  /** At most `maxTokens` tokens: text tokens are dropped from the end, the special tokens around them stay. */
  encode(text: string, maxTokens: number): Tokens;
}

/** What the post-processor puts before and after the text. */
interface Frame {
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
}

interface TokenizerJson {
  readonly normalizer?: (BertNormalization & { readonly type: string }) | null;
  readonly pre_tokenizer?: { readonly type: string } | null;
}

/** Characters encoded at a time, about: a long text is read only as far as `maxTokens` reaches. */
const SLICE = 2048;
/** BERT's words end before a space and before a Han character whatever precedes them, so a text may be cut there. */
const CUT = /[\s\u4e00-\u9fff]/u;

function* slices(text: string): Generator<string> {
  let start = 0;
  while (start < text.length) {
    const from = start + SLICE;
    const next = from < text.length ? text.slice(from).search(CUT) : -1;
    const end = next < 0 ? text.length : from + next;
    yield text.slice(start, end);
    start = end;
  }
}

function findFrame(tokenizer: HuggingFaceTokenizer): Frame {
  const body = tokenizer.encode("a", { add_special_tokens: false }).ids;
  const whole = tokenizer.encode("a", { add_special_tokens: true }).ids;
  for (let start = 0; start + body.length <= whole.length; start++) {
    if (body.length > 0 && body.every((id, i) => whole[start + i] === id)) {
      return { prefix: whole.slice(0, start), suffix: whole.slice(start + body.length) };
    }
  }
  throw new Error("tokenizer.json: the post-processor does not keep the text's tokens together");
}

/** @huggingface/tokenizers on tokenizer.json; its own truncation and padding settings are not used. */
export class JsonTokenizer implements Tokenizer {
  readonly #tokenizer: HuggingFaceTokenizer;
  readonly #frame: Frame;
  /** Whether a text may be encoded in slices with the same result. */
  readonly #sliceable: boolean;

  /** Raises when the two files are not a tokenizer. */
  constructor(tokenizerJson: string, configJson: string) {
    const json = JSON.parse(tokenizerJson) as TokenizerJson;
    this.#tokenizer = new HuggingFaceTokenizer(json, JSON.parse(configJson) as object);
    const { normalizer } = json;
    const isBert = normalizer?.type === "BertNormalizer";
    if (isBert) {
      const replacement = (text: string) => bertNormalize(text, normalizer);
      this.#tokenizer.normalizer = replacement as unknown as HuggingFaceTokenizer["normalizer"];
    }
    this.#sliceable = isBert && normalizer.handle_chinese_chars !== false && json.pre_tokenizer?.type === "BertPreTokenizer";
    this.#frame = findFrame(this.#tokenizer);
  }

  /** The text's token ids without special tokens around them; possibly not all of them, but more than `room`. */
  #body(text: string, room: number): number[] {
    const ids: number[] = [];
    for (const slice of this.#sliceable ? slices(text) : [text]) {
      for (const id of this.#tokenizer.encode(slice, { add_special_tokens: false }).ids) ids.push(id);
      if (ids.length > room) break;
    }
    return ids;
  }

  encode(text: string, maxTokens: number): Tokens {
    const { prefix, suffix } = this.#frame;
    const room = Math.max(0, maxTokens - prefix.length - suffix.length);
    const body = this.#body(text, room);
    const ids = [...prefix, ...body.slice(0, room), ...suffix];
    return {
      ids,
      mask: new Array<number>(ids.length).fill(1),
      types: new Array<number>(ids.length).fill(0),
      count: ids.length,
      truncated: body.length > room,
    };
  }
}
