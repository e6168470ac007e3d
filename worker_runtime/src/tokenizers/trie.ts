/** Searching a double-array trie in place: trie.py has the layout of its units. */

import { Kind, type TokenizerFile } from "./file";

/** Bits of a unit: its label is the byte it was reached by plus 1; bit 31 marks a value. */
export const LABEL = 0x800001ff | 0;
export const VALUE_FOLLOWS = 512;
export const ROOT = 0;

export class Trie {
  readonly units: Int32Array;

  constructor(file: TokenizerFile, section: number | undefined) {
    const words = file.words(section, Kind.trie);
    this.units = new Int32Array(words.buffer as ArrayBuffer, words.byteOffset, words.length);
  }

  /** The node that `bytes[from..to)` lead to from `node`, or -1. Reading past the units' end leads nowhere. */
  walk(node: number, bytes: Uint8Array, from: number, to: number): number {
    const { units } = this;
    let at = node;
    for (let i = from; i < to; i++) {
      const code = (bytes[i] as number) + 1;
      at = ((units[at] as number) >>> 10) + code;
      if (((units[at] as number) & LABEL) !== code) return -1;
    }
    return at;
  }

  /** The value of the key that ends at `node`, or -1. */
  value(node: number): number {
    const unit = this.units[node] as number;
    if ((unit & VALUE_FOLLOWS) === 0) return -1;
    const value = this.units[unit >>> 10];
    return value === undefined ? -1 : value & 0x7fffffff;
  }

  /** The value of exactly these bytes, or -1. */
  get(bytes: Uint8Array, from: number, to: number): number {
    const node = this.walk(ROOT, bytes, from, to);
    return node < 0 ? -1 : this.value(node);
  }
}
