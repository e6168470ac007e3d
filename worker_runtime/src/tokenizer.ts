/** Text to token ids, exactly as Python `tokenizers` does with truncation on and padding off. */

import { Tokenizer as HuggingFaceTokenizer } from "@huggingface/tokenizers";
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

  /** Raises when the two files are not a tokenizer. */
  constructor(tokenizerJson: string, configJson: string) {
    this.#tokenizer = new HuggingFaceTokenizer(JSON.parse(tokenizerJson) as object, JSON.parse(configJson) as object);
    this.#frame = findFrame(this.#tokenizer);
  }

  encode(text: string, maxTokens: number): Tokens {
    const { prefix, suffix } = this.#frame;
    const body = this.#tokenizer.encode(text, { add_special_tokens: false }).ids;
    const room = Math.max(0, maxTokens - prefix.length - suffix.length);
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
