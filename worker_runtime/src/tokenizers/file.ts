/**
 * `tokenizer.bin`: a header, a table of sections of little-endian integers, and the program that names them.
 * edgespec/engine/tokenizer/layout.py writes it; docs/tokenizers.md describes it. Nothing is copied.
 */

export const NONE = 0xffffffff;
const MAGIC = 0x54474445;
const VERSION = 1;
const HEADER = 32;
const ENTRY = 16;

export const Kind = {
  program: 1,
  words: 2,
  trie: 3,
  flags: 4,
  map: 5,
  floats: 6,
  doubles: 7,
  charsmap: 8,
} as const;

export interface Record {
  readonly op: number;
  readonly args: Uint32Array;
}

interface Section {
  readonly kind: number;
  readonly offset: number;
  readonly bytes: number;
}

/** The file is not what it should be. Nothing of it may be used. */
export class InvalidTokenizer extends Error {
  constructor(why: string) {
    super(`tokenizer.bin: ${why}`);
    this.name = "InvalidTokenizer";
  }
}

export function refuseUnless(condition: boolean, why: string): asserts condition {
  if (!condition) throw new InvalidTokenizer(why);
}

/** Of the data one word in this many is in the sum: the artifact's SHA-256 covers each byte, and cold code is slow. */
const SAMPLE = 128;

/** FNV over 32-bit words. */
function addTo(sum: number, words: Uint32Array, start: number, end: number, step: number): number {
  let result = sum;
  for (let i = start; i < end; i += step) result = Math.imul(result ^ (words[i] as number), 0x01000193);
  return result;
}

export class TokenizerFile {
  readonly #buffer: ArrayBuffer;
  readonly #sections: readonly Section[];
  readonly #program: Uint32Array;

  /** Raises InvalidTokenizer unless the file is whole, unchanged and of this version. */
  constructor(buffer: ArrayBuffer) {
    refuseUnless(buffer.byteLength >= HEADER && buffer.byteLength % 4 === 0, "it is cut short");
    const words = new Uint32Array(buffer);
    const version = words[1] as number;
    const size = words[2] as number;
    const count = words[4] as number;
    refuseUnless(words[0] === MAGIC, "it is no tokenizer file");
    refuseUnless(version === VERSION, `its version is ${version} and this runtime reads ${VERSION}; build the artifact again`);
    refuseUnless(size === buffer.byteLength, `it has ${buffer.byteLength} bytes instead of ${size}`);
    refuseUnless(count > 0 && count <= 256 && HEADER + ENTRY * count <= size, "its table of sections is too long");
    this.#buffer = buffer;
    this.#sections = this.#readTable(words, count);
    this.#program = this.words(count - 1, Kind.program);
    let found = addTo(0x811c9dc5, words, HEADER / 4, (HEADER + ENTRY * count) / 4, 1);
    found = addTo(found, this.#program, 0, this.#program.length, 1);
    found = addTo(found, words, HEADER / 4, words.length, SAMPLE);
    refuseUnless(found >>> 0 === words[3], "its bytes are not those that were written");
  }

  // Words one by one here and below: to take arrays apart is slow as long as the code is cold, and it runs once.
  #readTable(words: Uint32Array, count: number): Section[] {
    const sections: Section[] = [];
    for (let i = 0; i < count; i++) {
      const at = (HEADER + ENTRY * i) / 4;
      const offset = words[at + 1] as number;
      const bytes = words[at + 2] as number;
      const inside = offset >= HEADER + ENTRY * count && offset + bytes <= this.#buffer.byteLength;
      refuseUnless(inside && offset % 4 === 0 && bytes % 4 === 0, `its section ${i} is outside the file`);
      sections.push({ kind: words[at] as number, offset, bytes });
    }
    return sections;
  }

  #find(index: number | undefined, kind: number): Section {
    const section = index === undefined ? undefined : this.#sections[index];
    refuseUnless(section !== undefined && section.kind === kind, `its program names no section ${index} of kind ${kind}`);
    return section;
  }

  bytes(index: number | undefined, kind: number): Uint8Array {
    const { offset, bytes } = this.#find(index, kind);
    return new Uint8Array(this.#buffer, offset, bytes);
  }

  words(index: number | undefined, kind: number = Kind.words): Uint32Array {
    const { offset, bytes } = this.#find(index, kind);
    return new Uint32Array(this.#buffer, offset, bytes / 4);
  }

  halves(index: number | undefined, kind: number): Uint16Array {
    const { offset, bytes } = this.#find(index, kind);
    return new Uint16Array(this.#buffer, offset, bytes / 2);
  }

  /** Scores: float32 in place, float64 as a copy since a section starts at a multiple of four only. */
  scores(index: number | undefined): Float32Array | Float64Array {
    const section = index === undefined ? undefined : this.#sections[index];
    refuseUnless(section !== undefined, "its program names no section of scores");
    const { kind, offset, bytes } = section;
    if (kind === Kind.floats) return new Float32Array(this.#buffer, offset, bytes / 4);
    refuseUnless(kind === Kind.doubles && bytes % 8 === 0, "its scores are neither float32 nor float64");
    return new Float64Array(this.#buffer.slice(offset, offset + bytes));
  }

  /** The program's records in order. */
  records(): Record[] {
    const words = this.#program;
    const records: Record[] = [];
    for (let at = 0; at < words.length; ) {
      const count = words[at + 1];
      refuseUnless(count !== undefined && at + 2 + count <= words.length, "its program ends within a record");
      records.push({ op: words[at] as number, args: words.subarray(at + 2, at + 2 + count) });
      at += 2 + count;
    }
    return records;
  }
}
