/** Tables by code point in two stages, and the flags that the pre-tokenisers go by. */

import { Kind, refuseUnless, type TokenizerFile } from "./file";

const BLOCKS = 0x1100;

/** Flags of a code point as the library's crates see it: see unicode_tables.py. */
export const LETTER = 1;
export const NUMBER = 2;
export const SPACE = 4;
export const PUNCTUATION = 8;
export const WORD = 16;
export const NUMERIC = 32;

/** One byte per code point. What a wrong number leads past the end of is 0: to look at all of them would take long. */
export class Flags {
  readonly stage: Uint16Array;
  readonly blocks: Uint8Array;

  constructor(file: TokenizerFile, section: number | undefined) {
    const bytes = file.bytes(section, Kind.flags);
    refuseUnless(bytes.length >= 2 * BLOCKS, "a table of flags is cut short");
    this.stage = file.halves(section, Kind.flags).subarray(0, BLOCKS);
    this.blocks = bytes.subarray(2 * BLOCKS);
  }

  of(code: number): number {
    return this.blocks[((this.stage[code >> 8] as number) << 8) | (code & 255)] ?? 0;
  }

  /** Whether any code point of the text has a flag. */
  any(text: string): boolean {
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      if (unit >= 0xd800 && unit < 0xdc00) {
        if (this.of(text.codePointAt(i) as number) !== 0) return true;
        i++;
      } else if (this.of(unit) !== 0) return true;
    }
    return false;
  }
}

const KEEP = 0;
const DROP = 1;
const PAD = 2;
const HANGUL = 3;

/** For each code point what to put in its place. */
export class CodePointMap {
  readonly #stage: Uint16Array;
  readonly #blocks: Uint16Array;
  readonly #pool: Uint32Array;

  constructor(file: TokenizerFile, section: number | undefined) {
    const words = file.words(section, Kind.map);
    const halves = file.halves(section, Kind.map);
    refuseUnless(words.length >= 2 + BLOCKS / 2, "a map of code points is cut short");
    const blocks = words[0] as number;
    const pool = words[1] as number;
    const end = 2 + BLOCKS / 2 + blocks * 128;
    refuseUnless(end + pool <= words.length, "a map of code points is cut short");
    this.#stage = halves.subarray(4, 4 + BLOCKS);
    this.#blocks = halves.subarray(4 + BLOCKS, 2 * end);
    this.#pool = words.subarray(end, end + pool);
  }

  /** 0 where the code point stays as it is. */
  value(code: number): number {
    return this.#blocks[((this.#stage[code >> 8] as number) << 8) | (code & 255)] ?? KEEP;
  }

  drops(code: number): boolean {
    return this.value(code) === DROP;
  }

  /** Append what stands for the code point to `codes`. */
  expand(code: number, codes: number[]): void {
    const value = this.value(code);
    if (value === KEEP) codes.push(code);
    else if (value === PAD) codes.push(32, code, 32);
    else if (value === HANGUL) expandHangul(code, codes);
    else if (value !== DROP) {
      const last = value + (this.#pool[value] ?? 0);
      for (let at = value + 1; at <= last && at < this.#pool.length; at++) codes.push(this.#pool[at] as number);
    }
  }

  #string(value: number, code: number): string {
    if (value === DROP) return "";
    if (value === PAD) return ` ${String.fromCodePoint(code)} `;
    const codes: number[] = [];
    this.expand(code, codes);
    return String.fromCodePoint(...codes);
  }

  apply(text: string): string {
    let out = "";
    let copied = 0;
    for (let i = 0; i < text.length; ) {
      const code = text.codePointAt(i) as number;
      const value = this.value(code);
      const next = i + (code > 0xffff ? 2 : 1);
      if (value !== KEEP) {
        out += text.slice(copied, i) + this.#string(value, code);
        copied = next;
      }
      i = next;
    }
    return copied === 0 ? text : out + text.slice(copied);
  }
}

/** A Hangul syllable's two or three letters. */
export function expandHangul(code: number, codes: number[]): void {
  const index = code - 0xac00;
  codes.push(0x1100 + Math.floor(index / 588), 0x1161 + Math.floor((index % 588) / 28));
  if (index % 28 !== 0) codes.push(0x11a7 + (index % 28));
}

export const isHangulSyllable = (code: number): boolean => code >= 0xac00 && code <= 0xd7a3;
