/** Added tokens: found before all else, the longest of those that start first. */

import { type Flags, SPACE, WORD as WORD_CHARACTER } from "./code-points";
import { type Record, refuseUnless, type TokenizerFile } from "./file";
import { LABEL, ROOT, Trie, VALUE_FOLLOWS } from "./trie";
import { writeUtf8 } from "./utf8";

const LEFT = 1;
const RIGHT = 2;
const WORD = 4;

/** Both answer whether more is wanted. */
export interface Parts {
  text(start: number, end: number): boolean;
  token(id: number): boolean;
}

export class AddedTokens {
  readonly #trie: Trie;
  /** Id and flags of each token. */
  readonly #table: Uint32Array;
  /** Bits for the ASCII characters that a token starts with, then whether one starts beyond ASCII. */
  readonly #firsts: Uint32Array;
  readonly #flags: Flags;
  readonly #bytes = new Uint8Array(4);

  constructor(file: TokenizerFile, { args }: Record, flags: Flags) {
    refuseUnless(args.length === 8, "its record of added tokens is cut short");
    this.#trie = new Trie(file, args[1]);
    this.#table = file.words(args[2]);
    this.#firsts = args.subarray(3, 8);
    this.#flags = flags;
    for (const unit of this.#trie.units) {
      refuseUnless(unit >= 0 || 2 * (unit & 0x7fffffff) + 1 < this.#table.length, "its trie names no added token");
    }
  }

  #mayStart(unit: number): boolean {
    if (unit > 127) return this.#firsts[4] !== 0;
    return (((this.#firsts[unit >> 5] as number) >>> (unit & 31)) & 1) !== 0;
  }

  /** Where the longest token at `start` ends and its place in the table, or null. */
  #longest(text: string, start: number): { end: number; index: number } | null {
    const { units } = this.#trie;
    const bytes = this.#bytes;
    let unit = units[ROOT] as number;
    let found: { end: number; index: number } | null = null;
    for (let i = start; i < text.length; ) {
      const code = text.codePointAt(i) as number;
      const length = writeUtf8(code, bytes, 0);
      for (let k = 0; k < length; k++) {
        const label = (bytes[k] as number) + 1;
        unit = units[(unit >>> 10) + label] as number;
        if ((unit & LABEL) !== label) return found;
      }
      i += code > 0xffff ? 2 : 1;
      if ((unit & VALUE_FOLLOWS) !== 0) found = { end: i, index: (units[unit >>> 10] as number) & 0x7fffffff };
    }
    return found;
  }

  #is(text: string, at: number, flag: number): boolean {
    return at >= 0 && at < text.length && (this.#flags.of(text.codePointAt(at) as number) & flag) !== 0;
  }

  #isWordBefore(text: string, at: number): boolean {
    const low = text.charCodeAt(at - 1);
    return this.#is(text, low >= 0xdc00 && low < 0xe000 ? at - 2 : at - 1, WORD_CHARACTER);
  }

  /** Hand on the parts of the text in order: tokens, and what is between them. */
  split(text: string, parts: Parts): boolean {
    let done = 0;
    for (let at = 0; at < text.length; ) {
      const match = this.#mayStart(text.charCodeAt(at)) ? this.#longest(text, at) : null;
      if (match === null) {
        at++;
        continue;
      }
      let start = at;
      let stop = match.end;
      at = stop;
      const id = this.#table[2 * match.index] as number;
      const flags = this.#table[2 * match.index + 1] as number;
      const stuck = this.#isWordBefore(text, start) || this.#is(text, stop, WORD_CHARACTER);
      if ((flags & WORD) !== 0 && stuck) continue;
      if ((flags & LEFT) !== 0) {
        while (start > done && this.#is(text, start - 1, SPACE)) start--;
        start = Math.max(start, done);
      }
      if ((flags & RIGHT) !== 0) while (this.#is(text, stop, SPACE)) stop++;
      if (done < start && !parts.text(done, start)) return false;
      if (!parts.token(id)) return false;
      done = stop;
    }
    return done >= text.length || parts.text(done, text.length);
  }
}
