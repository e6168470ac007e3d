/** UTF-8 of a piece of text in a buffer that grows and is used again. */

export class Utf8 {
  bytes = new Uint8Array(1024);
  length = 0;
  /** Code points in it. */
  characters = 0;

  /** The text must have no lone surrogates. */
  set(text: string): void {
    const worst = 3 * text.length;
    if (this.bytes.length < worst) this.bytes = new Uint8Array(2 * worst);
    const { bytes } = this;
    let at = 0;
    let continued = 0;
    for (let i = 0; i < text.length; i++) {
      let code = text.charCodeAt(i);
      if (code < 0x80) {
        bytes[at++] = code;
        continue;
      }
      if (code >= 0xd800 && code < 0xe000) code = text.codePointAt(i++) as number;
      at = writeUtf8(code, bytes, at);
      continued += code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    }
    this.length = at;
    this.characters = at - continued;
  }
}

/** Write one code point; answers where the next goes. */
export function writeUtf8(code: number, bytes: Uint8Array, start: number): number {
  let at = start;
  if (code < 0x80) bytes[at++] = code;
  else {
    if (code < 0x800) bytes[at++] = 0xc0 | (code >> 6);
    else {
      if (code < 0x10000) bytes[at++] = 0xe0 | (code >> 12);
      else {
        bytes[at++] = 0xf0 | (code >> 18);
        bytes[at++] = 0x80 | ((code >> 12) & 63);
      }
      bytes[at++] = 0x80 | ((code >> 6) & 63);
    }
    bytes[at++] = 0x80 | (code & 63);
  }
  return at;
}

export const utf8Length = (code: number): number => (code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);

