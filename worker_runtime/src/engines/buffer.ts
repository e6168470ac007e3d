/** A file in a buffer of its own. */

import type { Sink } from "./engine";

export class BufferSink implements Sink {
  readonly bytes: Uint8Array<ArrayBuffer>;

  constructor(size: number) {
    this.bytes = new Uint8Array(size);
  }

  write(offset: number, bytes: Uint8Array): void {
    this.bytes.set(bytes, offset);
  }

  view(offset: number, size: number): Uint8Array<ArrayBuffer> | null {
    // The memory tier frees what it drops.
    return this.bytes.byteLength === 0 && size > 0 ? null : this.bytes.subarray(offset, offset + size);
  }
}
