/** Byte pair encoding: the library's queue of merges, step by step, over arrays that are used again. */

import { NONE, refuseUnless, type Record, type TokenizerFile } from "./file";
import type { Model } from "./model";
import { Trie } from "./trie";
import { Utf8 } from "./utf8";

const FUSE = 1;
const WHOLE = 2;
const BYTES = 4;
const FALLBACK = 8;
/** Positions take the low bits of a queue key, ranks the high ones: both together stay below 2^53. */
const POSITIONS = 2 ** 28;
/** Buffers larger than for this many symbols are let go after a piece. */
const KEPT = 1 << 14;

/** Merges by priority: rank first, then position. */
class Queue {
  keys = new Float64Array(256);
  size = 0;

  push(key: number): void {
    if (this.size === this.keys.length) {
      const larger = new Float64Array(2 * this.size);
      larger.set(this.keys);
      this.keys = larger;
    }
    const { keys } = this;
    let at = this.size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = keys[parent] as number;
      if (above <= key) break;
      keys[at] = above;
      at = parent;
    }
    keys[at] = key;
  }

  pop(): number {
    const { keys } = this;
    const top = keys[0] as number;
    const last = keys[--this.size] as number;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.size) break;
      if (child + 1 < this.size && (keys[child + 1] as number) < (keys[child] as number)) child++;
      if ((keys[child] as number) >= last) break;
      keys[at] = keys[child] as number;
      at = child;
    }
    keys[at] = last;
    return top;
  }
}

/** The symbols of one piece as a doubly linked list; -1 ends it, and marks a symbol that was merged away in `ids`. */
class Symbols {
  ids = new Int32Array(256);
  next = new Int32Array(256);
  previous = new Int32Array(256);
  count = 0;

  reserve(count: number): void {
    if (this.ids.length >= count) return;
    for (const name of ["ids", "next", "previous"] as const) this[name] = new Int32Array(count);
  }

  add(id: number): void {
    this.ids[this.count++] = id;
  }

  link(): void {
    for (let i = 0; i < this.count; i++) {
      this.next[i] = i + 1;
      this.previous[i] = i - 1;
    }
    if (this.count > 0) this.next[this.count - 1] = -1;
  }
}

export class Bpe implements Model {
  readonly #bytes: Uint32Array;
  readonly #slots: Uint32Array;
  /** Left, right, joined for each merge in order of rank. */
  readonly #merges: Uint32Array;
  readonly #trie: Trie | null;
  readonly #unknown: number;
  readonly #flags: number;
  readonly #utf8 = new Utf8();
  #symbols = new Symbols();
  #queue = new Queue();

  constructor(file: TokenizerFile, { args }: Record) {
    refuseUnless(args.length === 6, "its BPE record is cut short");
    this.#bytes = file.words(args[0]);
    this.#slots = file.words(args[1]);
    this.#merges = file.words(args[2]);
    this.#trie = args[3] === NONE ? null : new Trie(file, args[3]);
    this.#unknown = args[4] as number;
    this.#flags = args[5] as number;
    const { length } = this.#slots;
    refuseUnless(this.#bytes.length === 256, "its table of bytes has not 256 entries");
    refuseUnless(length > 0 && (length & (length - 1)) === 0, "its table of merges is no power of two");
    refuseUnless(this.#merges.length % 3 === 0 && this.#merges.length / 3 < length, "its merges do not fit their table");
    refuseUnless(this.#trie !== null || (this.#flags & (WHOLE | BYTES)) === BYTES, "its BPE record names no trie");
  }

  encode(piece: string, ids: number[]): void {
    const utf8 = this.#utf8;
    utf8.set(piece);
    if ((this.#flags & WHOLE) !== 0) {
      const id = (this.#trie as Trie).get(utf8.bytes, 0, utf8.length);
      if (id >= 0) {
        ids.push(id);
        return;
      }
    }
    this.#symbols.reserve(utf8.length);
    this.#symbols.count = 0;
    if ((this.#flags & BYTES) !== 0) this.#addBytes();
    else this.#addCharacters();
    if (this.#symbols.count > 1) this.#merge();
    this.#collect(ids);
    if (utf8.length > KEPT) {
      this.#symbols = new Symbols();
      this.#queue = new Queue();
    }
  }

  #addBytes(): void {
    const { bytes, length } = this.#utf8;
    const symbols = this.#symbols;
    let unknown = false;
    for (let i = 0; i < length; i++) {
      const id = this.#bytes[bytes[i] as number] as number;
      if (id !== NONE) symbols.add(id);
      else if (this.#unknown !== NONE && !(unknown && (this.#flags & FUSE) !== 0)) symbols.add(this.#unknown);
      unknown = id === NONE;
    }
  }

  /** Characters, or the bytes of those that the vocabulary lacks, or unknown ones. */
  #addCharacters(): void {
    const { bytes, length } = this.#utf8;
    const symbols = this.#symbols;
    // The library holds an unknown character back until the next known one, so bytes in between come before it.
    let unknown = false;
    for (let start = 0; start < length; ) {
      let end = start + 1;
      while (end < length && ((bytes[end] as number) & 0xc0) === 0x80) end++;
      const id = (this.#trie as Trie).get(bytes, start, end);
      if (id >= 0) {
        if (unknown) symbols.add(this.#unknown);
        unknown = false;
        symbols.add(id);
      } else if (!((this.#flags & FALLBACK) !== 0 && this.#addFallback(start, end)) && this.#unknown !== NONE) {
        if (unknown && (this.#flags & FUSE) === 0) symbols.add(this.#unknown);
        unknown = true;
      }
      start = end;
    }
    if (unknown) symbols.add(this.#unknown);
  }

  #addFallback(start: number, end: number): boolean {
    const { bytes } = this.#utf8;
    for (let i = start; i < end; i++) if (this.#bytes[bytes[i] as number] === NONE) return false;
    for (let i = start; i < end; i++) this.#symbols.add(this.#bytes[bytes[i] as number] as number);
    return true;
  }

  /** The rank of the merge of two symbols, or -1. */
  #rank(left: number, right: number): number {
    const slots = this.#slots;
    const merges = this.#merges;
    const mask = slots.length - 1;
    const hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
    for (let slot = (hash ^ (hash >>> 15)) & mask, tries = 0; tries <= mask; slot = (slot + 1) & mask, tries++) {
      const rank = (slots[slot] as number) - 1;
      if (rank < 0) return -1;
      if (merges[3 * rank] === left && merges[3 * rank + 1] === right) return rank;
    }
    return -1;
  }

  #propose(left: number, right: number): void {
    const { ids } = this.#symbols;
    const rank = this.#rank(ids[left] as number, ids[right] as number);
    if (rank >= 0) this.#queue.push(rank * POSITIONS + left);
  }

  #merge(): void {
    const symbols = this.#symbols;
    const { ids, next, previous } = symbols;
    const queue = this.#queue;
    symbols.link();
    queue.size = 0;
    for (let i = 0; i + 1 < symbols.count; i++) this.#propose(i, i + 1);
    while (queue.size > 0) {
      const key = queue.pop();
      const rank = Math.floor(key / POSITIONS);
      const at = key - rank * POSITIONS;
      const right = next[at] as number;
      if (ids[at] === -1 || right === -1) continue;
      // An old proposal still counts where the pair is another one now that joins to the same symbol: as in the library.
      const joined = this.#merges[3 * rank + 2] as number;
      const now = this.#rank(ids[at] as number, ids[right] as number);
      if (now < 0 || this.#merges[3 * now + 2] !== joined) continue;
      ids[at] = joined;
      ids[right] = -1;
      const after = next[right] as number;
      next[at] = after;
      if (after !== -1) previous[after] = at;
      if (previous[at] !== -1) this.#propose(previous[at] as number, at);
      if (after !== -1) this.#propose(at, after);
    }
  }

  #collect(out: number[]): void {
    const { ids, count } = this.#symbols;
    for (let i = 0; i < count; i++) if (ids[i] !== -1) out.push(ids[i] as number);
  }
}
