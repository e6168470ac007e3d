/** The Worker's tokenizer alone: POST {files, texts, lengths} -> for every length the ids of every text. */

import { JsonTokenizer } from "../../src/tokenizer";

interface Body {
  readonly files: readonly [string, string];
  readonly texts: readonly string[];
  readonly lengths: readonly number[];
}

export default {
  async fetch(request) {
    const { files, texts, lengths } = await request.json<Body>();
    const tokenizer = new JsonTokenizer(...files);
    const ids = lengths.map((length) => texts.map((text) => tokenizer.encode(text, length).ids));
    return Response.json(ids);
  },
} satisfies ExportedHandler;
