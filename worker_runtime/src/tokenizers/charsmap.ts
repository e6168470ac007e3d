/** SentencePiece's precompiled map of characters, with what the library makes of it. */

import { clusterEnd } from "./clusters";
import { Flags } from "./code-points";
import { Kind, refuseUnless, type TokenizerFile } from "./file";
import { utf8Length, writeUtf8 } from "./utf8";

/** Clusters of at least this many bytes are mapped character by character. */
const LONG = 6;

export class Charsmap {
  /** darts-clone's units: `base << 10`, bit 9 says that the base is shifted by 8, bit 8 that a value follows, a label. */
  readonly #units: Uint32Array;
  /** Replacements, each ended by a zero byte. */
  readonly #replacements: Uint8Array;
  readonly #classes: Flags;
  readonly #bytes = new Uint8Array(8);
  /** What each ASCII character becomes; null where it stays. */
  readonly #ascii: readonly (string | null)[];

  constructor(file: TokenizerFile, args: Uint32Array) {
    refuseUnless(args.length === 2, "its charsmap record is cut short");
    const words = file.words(args[0], Kind.charsmap);
    refuseUnless(words.length > 2, "its charsmap is cut short");
    const [units, length] = words as unknown as [number, number];
    const bytes = file.bytes(args[0], Kind.charsmap);
    refuseUnless(units > 0 && 8 + 4 * units + length <= bytes.length, "its charsmap is cut short");
    this.#units = words.subarray(2, 2 + units);
    this.#replacements = bytes.subarray(8 + 4 * units, 8 + 4 * units + length);
    this.#classes = new Flags(file, args[1]);
    this.#ascii = Array.from({ length: 128 }, (_, code) => this.#transform(String.fromCharCode(code), 0, 1));
  }

  /** The replacement of the shortest prefix of `text[start..end)` that has one, or null. At most eight bytes are read. */
  #transform(text: string, start: number, end: number): string | null {
    const bytes = this.#bytes;
    let length = 0;
    for (let i = start; i < end; ) {
      const code = text.codePointAt(i) as number;
      length = writeUtf8(code, bytes, length);
      i += code > 0xffff ? 2 : 1;
    }
    const units = this.#units;
    let unit = units[0] as number;
    let at = (unit >>> 10) << ((unit & 512) >>> 6);
    for (let i = 0; i < length; i++) {
      const byte = bytes[i] as number;
      at ^= byte;
      unit = units[at] ?? 0;
      if (byte === 0 || (unit & 0x800000ff) !== byte) return null;
      at ^= (unit >>> 10) << ((unit & 512) >>> 6);
      if ((unit & 256) !== 0) return this.#replacement((units[at] ?? 0) & 0x7fffffff);
    }
    return null;
  }

  #replacement(start: number): string {
    const bytes = this.#replacements;
    let text = "";
    for (let i = start; i < bytes.length && bytes[i] !== 0; ) {
      const first = bytes[i++] as number;
      if (first < 0x80) {
        text += String.fromCharCode(first);
        continue;
      }
      const more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
      let code = first & (0x3f >> more);
      for (let k = 0; k < more; k++) code = (code << 6) | ((bytes[i++] ?? 0) & 63);
      text += String.fromCodePoint(Math.min(code, 0x10ffff));
    }
    return text;
  }

  apply(text: string): string {
    let out = "";
    let copied = 0;
    for (let i = 0; i < text.length; ) {
      const code = text.charCodeAt(i);
      const plain = code < 128 && code !== 13 && (i + 1 === text.length || text.charCodeAt(i + 1) < 128);
      const end = plain ? i + 1 : clusterEnd(text, i, this.#classes);
      const mapped = plain ? (this.#ascii[code] as string | null) : this.#cluster(text, i, end);
      if (mapped !== null) {
        out += text.slice(copied, i) + mapped;
        copied = end;
      }
      i = end;
    }
    return copied === 0 ? text : out + text.slice(copied);
  }

  /** What a cluster becomes, or null where it stays. */
  #cluster(text: string, start: number, end: number): string | null {
    if (bytesUpTo(text, start, end, LONG) < LONG) {
      const whole = this.#transform(text, start, end);
      if (whole !== null) return whole;
    }
    let out = "";
    let changed = false;
    for (let i = start; i < end; ) {
      const next = i + ((text.codePointAt(i) as number) > 0xffff ? 2 : 1);
      const mapped = this.#transform(text, i, next);
      changed ||= mapped !== null;
      out += mapped ?? text.slice(i, next);
      i = next;
    }
    return changed ? out : null;
  }
}

function bytesUpTo(text: string, start: number, end: number, enough: number): number {
  let bytes = 0;
  for (let i = start; i < end && bytes < enough; ) {
    const code = text.codePointAt(i) as number;
    bytes += utf8Length(code);
    i += code > 0xffff ? 2 : 1;
  }
  return bytes;
}
