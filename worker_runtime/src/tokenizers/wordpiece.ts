/** WordPiece: the longest piece first, from the left; a word that cannot be pieced together is unknown. */

import { refuseUnless, type Record, type TokenizerFile } from "./file";
import type { Model } from "./model";
import { LABEL, ROOT, Trie, VALUE_FOLLOWS } from "./trie";
import { Utf8 } from "./utf8";

export class WordPiece implements Model {
  readonly #trie: Trie;
  readonly #unknown: number;
  readonly #most: number;
  /** The node below which the pieces within a word are, or -1. */
  readonly #continued: number;
  readonly #utf8 = new Utf8();

  constructor(file: TokenizerFile, { args }: Record) {
    refuseUnless(args.length >= 3, "its WordPiece record is cut short");
    this.#trie = new Trie(file, args[0]);
    this.#unknown = args[1] as number;
    this.#most = args[2] as number;
    const prefix = Uint8Array.from(args.subarray(3));
    this.#continued = this.#trie.walk(ROOT, prefix, 0, prefix.length);
  }

  encode(piece: string, ids: number[]): void {
    const utf8 = this.#utf8;
    utf8.set(piece);
    if (utf8.characters > this.#most) {
      ids.push(this.#unknown);
      return;
    }
    const { bytes, length } = utf8;
    const before = ids.length;
    for (let start = 0; start < length; ) {
      const node = start === 0 ? ROOT : this.#continued;
      start = node < 0 ? -1 : this.#longest(node, bytes, start, length, ids);
      if (start < 0) {
        ids.length = before;
        ids.push(this.#unknown);
        return;
      }
    }
  }

  /** Push the longest piece from `start`; answers its end, or -1. */
  #longest(root: number, bytes: Uint8Array, start: number, length: number, ids: number[]): number {
    const { units } = this.#trie;
    let unit = units[root] as number;
    let end = -1;
    let found = 0;
    for (let i = start; i < length; i++) {
      const code = (bytes[i] as number) + 1;
      const at = (unit >>> 10) + code;
      unit = units[at] as number;
      if ((unit & LABEL) !== code) break;
      if ((unit & VALUE_FOLLOWS) !== 0) {
        found = (units[unit >>> 10] as number) & 0x7fffffff;
        end = i + 1;
      }
    }
    if (end >= 0) ids.push(found);
    return end;
  }
}
