/** NFC, NFD, NFKC and NFKD by the file's tables, not by the engine's Unicode. */

import { CodePointMap, expandHangul, Flags, isHangulSyllable } from "./code-points";
import { NONE, refuseUnless, type TokenizerFile } from "./file";

/** In the table of classes: class 0, but the form changes the code point or joins it to another. */
const ORDER_MATTERS = 255;

export class Form {
  readonly #decompositions: CodePointMap;
  readonly #classes: Flags;
  /** A hash table of three words a slot: first, second, joined. Null where nothing is composed. */
  readonly #pairs: Uint32Array | null;

  constructor(file: TokenizerFile, args: Uint32Array) {
    refuseUnless(args.length === 3, "its normal form record is cut short");
    this.#decompositions = new CodePointMap(file, args[0]);
    this.#classes = new Flags(file, args[1]);
    this.#pairs = args[2] === NONE ? null : file.words(args[2]);
    const slots = (this.#pairs?.length ?? 3) / 3;
    refuseUnless(Number.isInteger(slots) && (slots & (slots - 1)) === 0, "its table of compositions is no power of two");
  }

  apply(text: string): string {
    if (!this.#classes.any(text)) return text;
    const codes: number[] = [];
    for (let i = 0; i < text.length; ) {
      const code = text.codePointAt(i) as number;
      if (isHangulSyllable(code)) expandHangul(code, codes);
      else this.#decompositions.expand(code, codes);
      i += code > 0xffff ? 2 : 1;
    }
    this.#order(codes);
    return toText(this.#pairs === null ? codes : this.#compose(codes));
  }

  #class(code: number): number {
    const value = this.#classes.of(code);
    return value === ORDER_MATTERS ? 0 : value;
  }

  /** Marks after one starter by class, those of one class in the order they came. */
  #order(codes: number[]): void {
    for (let at = 0; at < codes.length; at++) {
      if (this.#class(codes[at] as number) === 0) continue;
      let end = at + 1;
      while (end < codes.length && this.#class(codes[end] as number) !== 0) end++;
      if (end > at + 1) {
        const run = codes.slice(at, end).sort((a, b) => this.#class(a) - this.#class(b));
        for (let i = 0; i < run.length; i++) codes[at + i] = run[i] as number;
      }
      at = end;
    }
  }

  #compose(codes: readonly number[]): number[] {
    const out: number[] = [];
    let starter = -1;
    let last = -1;
    for (const code of codes) {
      const value = this.#class(code);
      const joined = starter >= 0 && last < value ? this.#join(out[starter] as number, code) : 0;
      if (joined !== 0) {
        out[starter] = joined;
        continue;
      }
      out.push(code);
      if (value === 0) {
        starter = out.length - 1;
        last = -1;
      } else last = value;
    }
    return out;
  }

  /** What two code points join to, or 0. */
  #join(first: number, second: number): number {
    if (first >= 0x1100 && first < 0x1113 && second >= 0x1161 && second < 0x1176) {
      return 0xac00 + ((first - 0x1100) * 21 + second - 0x1161) * 28;
    }
    if (isHangulSyllable(first) && (first - 0xac00) % 28 === 0 && second > 0x11a7 && second < 0x11c3) {
      return first + second - 0x11a7;
    }
    const pairs = this.#pairs as Uint32Array;
    const mask = pairs.length / 3 - 1;
    for (let slot = (Math.imul(first, 31) + second) & mask, tries = 0; tries <= mask; slot = (slot + 1) & mask, tries++) {
      const joined = pairs[3 * slot + 2] as number;
      if (joined === 0) return 0;
      if (pairs[3 * slot] === first && pairs[3 * slot + 1] === second) return joined;
    }
    return 0;
  }
}

function toText(codes: readonly number[]): string {
  let text = "";
  for (let i = 0; i < codes.length; i += 4096) text += String.fromCodePoint(...codes.slice(i, i + 4096));
  return text;
}
