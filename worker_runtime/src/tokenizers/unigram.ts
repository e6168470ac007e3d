/** Unigram: the segmentation of the highest score, as the library's forward pass finds it. */

import { NONE, refuseUnless, type Record, type TokenizerFile } from "./file";
import type { Model } from "./model";
import { LABEL, ROOT, Trie, VALUE_FOLLOWS } from "./trie";
import { Utf8 } from "./utf8";

/** Buffers for longer pieces are let go after use. */
const KEPT = 1 << 14;

export class Unigram implements Model {
  readonly #trie: Trie;
  readonly #scores: Float32Array | Float64Array;
  readonly #unknown: number;
  readonly #fallback: Uint32Array | null;
  /** Ten less than the lowest score. */
  readonly #unknownScore: number;
  readonly #utf8 = new Utf8();
  /** For each byte that a piece may end before: the best score so far, where its piece starts (-1: none), its id. */
  #best = new Float64Array(256);
  #from = new Int32Array(256);
  #ids = new Int32Array(256);

  constructor(file: TokenizerFile, { args }: Record) {
    refuseUnless(args.length === 6, "its Unigram record is cut short");
    this.#trie = new Trie(file, args[0]);
    this.#scores = file.scores(args[1]);
    this.#unknown = args[2] as number;
    this.#fallback = args[3] === NONE ? null : file.words(args[3]);
    this.#unknownScore = new Float64Array(Uint32Array.of(args[4] as number, args[5] as number).buffer)[0] as number;
    refuseUnless(this.#unknown < this.#scores.length, "its unknown piece has no score");
    refuseUnless(this.#fallback === null || this.#fallback.length === 256, "its table of bytes has not 256 entries");
  }

  encode(piece: string, ids: number[]): void {
    this.#utf8.set(piece);
    const { length } = this.#utf8;
    if (this.#best.length <= length) {
      this.#best = new Float64Array(2 * length + 2);
      this.#from = new Int32Array(2 * length + 2);
      this.#ids = new Int32Array(2 * length + 2);
    }
    this.#forward();
    this.#collect(ids);
    if (length > KEPT) {
      this.#best = new Float64Array(256);
      this.#from = new Int32Array(256);
      this.#ids = new Int32Array(256);
    }
  }

  #forward(): void {
    const { bytes, length } = this.#utf8;
    const { units } = this.#trie;
    const best = this.#best;
    const from = this.#from;
    const ids = this.#ids;
    const scores = this.#scores;
    from.fill(-1, 0, length + 1);
    best[0] = 0;
    const root = units[ROOT] as number;
    for (let start = 0; start < length; ) {
      const first = bytes[start] as number;
      const next = start + (first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4);
      const here = best[start] as number;
      let known = false;
      let unit = root;
      for (let i = start; i < length; ) {
        const code = (bytes[i++] as number) + 1;
        unit = units[(unit >>> 10) + code] as number;
        if ((unit & LABEL) !== code) break;
        if ((unit & VALUE_FOLLOWS) === 0) continue;
        const id = (units[unit >>> 10] as number) & 0x7fffffff;
        const score = here + (scores[id] as number);
        if (from[i] === -1 || score > (best[i] as number)) {
          best[i] = score;
          from[i] = start;
          ids[i] = id;
        }
        if (i === next) known = true;
      }
      if (!known) {
        const score = here + this.#unknownScore;
        if (from[next] === -1 || score > (best[next] as number)) {
          best[next] = score;
          from[next] = start;
          ids[next] = this.#unknown;
        }
      }
      start = next;
    }
  }

  /** Walk back from the end; unknown pieces next to one another are one. */
  #collect(out: number[]): void {
    const from = this.#from;
    const start = out.length;
    for (let end = this.#utf8.length; end > 0; ) {
      let begin = from[end] as number;
      const id = this.#ids[end] as number;
      if (id === this.#unknown) {
        while (begin > 0 && this.#ids[begin] === this.#unknown) begin = from[begin] as number;
        this.#addUnknown(begin, end, out);
      } else out.push(id);
      end = begin;
    }
    for (let i = start, j = out.length - 1; i < j; i++, j--) {
      const id = out[i] as number;
      out[i] = out[j] as number;
      out[j] = id;
    }
  }

  /** In reverse, since the caller walks backwards. */
  #addUnknown(begin: number, end: number, out: number[]): void {
    const { bytes } = this.#utf8;
    const whole = this.#trie.get(bytes, begin, end);
    const fallback = this.#fallback;
    if (whole < 0 && fallback !== null) {
      let covered = true;
      for (let i = begin; i < end; i++) covered &&= fallback[bytes[i] as number] !== NONE;
      if (covered) {
        for (let i = end - 1; i >= begin; i--) out.push(fallback[bytes[i] as number] as number);
        return;
      }
    }
    out.push(whole < 0 ? this.#unknown : whole);
  }
}
