/** A tokenizer over `tokenizer.bin`, with the ids of Python's `tokenizers`. */

import type { Tokenizer, Tokens } from "../tokenizer";
import { AddedTokens } from "./added-tokens";
import { Bpe } from "./bpe";
import { Flags } from "./code-points";
import { type Record, refuseUnless, TokenizerFile } from "./file";
import type { Model } from "./model";
import { LAST_NORMALIZER, type Place, readNormalizer } from "./normalizers";
import { FIRST_PRE_TOKENIZER, LAST_PRE_TOKENIZER, type Pieces, readPreTokenizer } from "./pre-tokenizers";
import { Unigram } from "./unigram";
import { WordPiece } from "./wordpiece";

const WORDPIECE = 64;
const BPE = 65;
const UNIGRAM = 66;
const FRAME = 96;
const ADDED = 97;
const SLICES = 98;

const RAW = 0;
const NORMALIZED = 1;
const CUT_SPACE = 1;
const CUT_HAN = 2;
/** UTF-16 units encoded at a time, about: a long text is read only as far as the tokens wanted reach. */
const SLICE = 2048;
const SPACE_CUT = /(?<=[A-Za-z0-9]) /g;
const HAN_CUT = /(?<=[A-Za-z0-9]) |[\u4e00-\u9fff]/g;

/** Special tokens around the text's, with their types. */
interface Frame {
  readonly ids: readonly number[];
  readonly types: readonly number[];
  readonly before: number;
  readonly body: number;
}

function readModel(file: TokenizerFile, record: Record): Model {
  if (record.op === WORDPIECE) return new WordPiece(file, record);
  if (record.op === BPE) return new Bpe(file, record);
  return new Unigram(file, record);
}

function readFrame({ args }: Record): Frame {
  const [before, after, body] = args;
  refuseUnless(body !== undefined && args.length === 3 + 2 * (before as number) + 2 * (after as number), "its frame is cut short");
  const pairs = [...args.subarray(3)];
  return {
    ids: pairs.filter((_, i) => i % 2 === 0),
    types: pairs.filter((_, i) => i % 2 === 1),
    before: before as number,
    body,
  };
}

class TableTokenizer implements Tokenizer {
  readonly #frame: Frame;
  readonly #cuts: RegExp | null;
  readonly #raw: AddedTokens | null;
  readonly #normalized: AddedTokens | null;
  readonly #normalize: (text: string, place: Place) => string;
  readonly #pieces: Pieces;
  /** The ids of the text at hand, and how many of them are enough. */
  #ids: number[] = [];
  #enough = 0;

  constructor(file: TokenizerFile) {
    const records = file.records();
    const one = (op: number, last = op): Record => {
      const found = records.filter((record) => record.op >= op && record.op <= last);
      refuseUnless(found.length === 1, `its program has ${found.length} records ${op}`);
      return found[0] as Record;
    };
    const slices = one(SLICES);
    const flags = new Flags(file, slices.args[0]);
    const cuts = slices.args[1] ?? 0;
    this.#cuts = (cuts & CUT_HAN) !== 0 ? HAN_CUT : (cuts & CUT_SPACE) !== 0 ? SPACE_CUT : null;
    this.#frame = readFrame(one(FRAME));
    const added = (stage: number): AddedTokens | null => {
      const found = records.find(({ op, args }) => op === ADDED && args[0] === stage);
      return found === undefined ? null : new AddedTokens(file, found, flags);
    };
    this.#raw = added(RAW);
    this.#normalized = added(NORMALIZED);
    this.#normalize = readNormalizer(file, records.filter(({ op }) => op <= LAST_NORMALIZER), flags);
    const model = readModel(file, one(WORDPIECE, UNIGRAM));
    const splitters = records.filter(({ op }) => op >= FIRST_PRE_TOKENIZER && op <= LAST_PRE_TOKENIZER);
    this.#pieces = readPreTokenizer(splitters, flags, (piece) => {
      model.encode(piece, this.#ids);
      return this.#ids.length <= this.#enough;
    });
  }

  encode(text: string, maxTokens: number): Tokens {
    const { ids: special, types, before, body } = this.#frame;
    const room = Math.max(0, maxTokens - special.length);
    const found: number[] = [];
    this.#ids = found;
    this.#enough = room;
    this.#body(text.isWellFormed() ? text : text.toWellFormed());
    this.#ids = [];
    const truncated = found.length > room;
    if (truncated) found.length = room;
    const count = found.length + special.length;
    return {
      ids: [...special.slice(0, before), ...found, ...special.slice(before)],
      mask: new Array<number>(count).fill(1),
      types: [...types.slice(0, before), ...new Array<number>(found.length).fill(body), ...types.slice(before)],
      count,
      truncated,
    };
  }

  /** The text's own ids, possibly not all of them but then more than enough. */
  #body(text: string): void {
    for (let start = 0; start < text.length; ) {
      const end = this.#cut(text, start);
      const slice = start === 0 && end === text.length ? text : text.slice(start, end);
      if (!this.#slice(slice, start === 0, end === text.length)) return;
      start = end;
    }
  }

  #cut(text: string, start: number): number {
    if (this.#cuts === null || text.length - start <= SLICE) return text.length;
    this.#cuts.lastIndex = start + SLICE;
    return this.#cuts.exec(text)?.index ?? text.length;
  }

  #token(id: number): boolean {
    this.#ids.push(id);
    return this.#ids.length <= this.#enough;
  }

  #slice(text: string, first: boolean, last: boolean): boolean {
    const fragment = (start: number, end: number): boolean =>
      this.#fragment(text.slice(start, end), {
        first: first || start > 0,
        last: last || end < text.length,
        atStart: first && start === 0,
      });
    if (this.#raw === null) return fragment(0, text.length);
    return this.#raw.split(text, { text: fragment, token: (id) => this.#token(id) });
  }

  #fragment(text: string, place: Place): boolean {
    const normalized = this.#normalize(text, place);
    if (this.#normalized === null) return normalized === "" || this.#pieces(normalized, place.atStart);
    return this.#normalized.split(normalized, {
      text: (start, end) => this.#pieces(normalized.slice(start, end), place.atStart && start === 0),
      token: (id) => this.#token(id),
    });
  }
}

/** The tokenizer of a `tokenizer.bin`, which is read in place and must not change. Raises InvalidTokenizer. */
export function openTokenizer(buffer: ArrayBuffer): Tokenizer {
  return new TableTokenizer(new TokenizerFile(buffer));
}
