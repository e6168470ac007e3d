/** The tokenizers alone: POST {file, texts, lengths} -> for every length the ids of every text. */

import { openTokenizer } from "../../src/tokenizers/open";

interface Body {
  /** tokenizer.bin in base64. */
  readonly file: string;
  readonly texts: readonly string[];
  readonly lengths: readonly number[];
}

export default {
  async fetch(request: Request): Promise<Response> {
    const { file, texts, lengths } = (await request.json()) as Body;
    const bytes = Uint8Array.from(atob(file), (c) => c.charCodeAt(0));
    const tokenizer = openTokenizer(bytes.buffer);
    return Response.json(lengths.map((length) => texts.map((text) => tokenizer.encode(text, length).ids)));
  },
};
