/** The memory tier: verified bytes that the isolate keeps outside wasm, least recently used first out. */

import type { Chunk } from "./config";

interface Kept {
  readonly bytes: Uint8Array;
  readonly size: number;
  readonly digests: readonly string[];
}

/** Give a buffer's memory back now rather than when the garbage collector comes by; its views become empty. */
export function free(bytes: Uint8Array): void {
  (bytes.buffer as ArrayBuffer).transfer(0);
}

/**
 * Chunks by SHA-256, at most `ceiling` bytes of them, or fewer after `limit`.
 * What is kept, counted and dropped is a whole file, since its chunks are views of one buffer and dropping a view
 * would free nothing. The tier owns what it keeps: it frees a file's memory as soon as it drops it, so bytes that
 * `get` hands out must be copied before anything else is awaited, and never written to.
 */
export class MemoryTier {
  readonly #chunks = new Map<string, { readonly view: Uint8Array; readonly of: Kept }>();
  /** In order of use, the oldest first. */
  readonly #files = new Set<Kept>();
  #bytes = 0;
  #limit: number;

  constructor(readonly ceiling: number) {
    this.#limit = ceiling;
  }

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

  /** Take over a file whose chunks, in order, make up `bytes`; its memory is freed where it is known or too large. */
  keep(bytes: Uint8Array, chunks: readonly Chunk[]): void {
    if (bytes.byteLength > this.#limit || chunks.every(({ sha256 }) => this.#chunks.has(sha256))) {
      free(bytes);
      return;
    }
    const kept: Kept = { bytes, size: bytes.byteLength, digests: chunks.map(({ sha256 }) => sha256) };
    let offset = 0;
    for (const { sha256, size } of chunks) {
      this.#chunks.set(sha256, { view: bytes.subarray(offset, offset + size), of: kept });
      offset += size;
    }
    this.#files.add(kept);
    this.#bytes += kept.size;
    this.#shrink();
  }

  /** Keep at most `bytes` from now on, and never more than the ceiling. */
  limit(bytes: number): void {
    this.#limit = Math.max(0, Math.min(this.ceiling, bytes));
    this.#shrink();
  }

  #shrink(): void {
    for (const file of this.#files) {
      if (this.#bytes <= this.#limit) return;
      this.#files.delete(file);
      this.#bytes -= file.size;
      for (const sha256 of file.digests) {
        if (this.#chunks.get(sha256)?.of === file) this.#chunks.delete(sha256);
      }
      free(file.bytes);
    }
  }
}
