/** The memory tier: verified bytes that the isolate keeps outside wasm, least recently used first out. */

import type { Chunk } from "./config";

interface Kept {
  readonly bytes: Uint8Array;
  readonly digests: readonly string[];
}

/**
 * Chunks by SHA-256, at most `ceiling` bytes of them.
 * What is kept, counted and dropped is a whole file, since its chunks are views of one buffer and dropping a view
 * would free nothing. Bytes handed out must not be written to.
 */
export class MemoryTier {
  readonly #chunks = new Map<string, { readonly view: Uint8Array; readonly of: Kept }>();
  /** In order of use, the oldest first. */
  readonly #files = new Set<Kept>();
  #bytes = 0;

  constructor(readonly ceiling: number) {}

  get bytes(): number {
    return this.#bytes;
  }

  get(sha256: string): Uint8Array | undefined {
    const found = this.#chunks.get(sha256);
    if (found === undefined) return undefined;
    this.#files.delete(found.of);
    this.#files.add(found.of);
    return found.view;
  }

  /**
   * Keep a file whose chunks, in order, make up `bytes`; false when they are not kept, since all of them are known
   * already or they exceed the ceiling.
   */
  keep(bytes: Uint8Array, chunks: readonly Chunk[]): boolean {
    if (bytes.byteLength > this.ceiling) return false;
    if (chunks.every(({ sha256 }) => this.#chunks.has(sha256))) return false;
    const kept: Kept = { bytes, digests: chunks.map(({ sha256 }) => sha256) };
    let offset = 0;
    for (const { sha256, size } of chunks) {
      this.#chunks.set(sha256, { view: bytes.subarray(offset, offset + size), of: kept });
      offset += size;
    }
    this.#files.add(kept);
    this.#bytes += bytes.byteLength;
    this.shrink(this.ceiling);
    return true;
  }

  /** Drop the least recently used files until at most `limit` bytes are kept. */
  shrink(limit: number): void {
    for (const file of this.#files) {
      if (this.#bytes <= limit) return;
      this.#files.delete(file);
      this.#bytes -= file.bytes.byteLength;
      for (const sha256 of file.digests) {
        if (this.#chunks.get(sha256)?.of === file) this.#chunks.delete(sha256);
      }
    }
  }
}
