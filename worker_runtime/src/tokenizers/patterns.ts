/** The regular expressions of GPT-2 and of cl100k (Llama 3, Qwen 2), known by heart: where the piece at a place ends. */

import { type Flags, LETTER, NUMBER, SPACE } from "./code-points";

const CLASSES = LETTER | NUMBER | SPACE;
const APOSTROPHE = 39;
const BLANK = 32;
const LONG_S = 0x17f;

/** Where the run ends whose code points have `wanted` of the three classes. */
function runEnd(text: string, start: number, flags: Flags, wanted: number): number {
  let at = start;
  while (at < text.length) {
    const unit = text.charCodeAt(at);
    const code = unit < 0xd800 || unit > 0xdfff ? unit : (text.codePointAt(at) as number);
    if ((flags.of(code) & CLASSES) !== wanted) return at;
    at += code > 0xffff ? 2 : 1;
  }
  return at;
}

const classAt = (text: string, at: number, flags: Flags): number =>
  at < text.length ? flags.of(text.codePointAt(at) as number) & CLASSES : SPACE;

const isNewline = (unit: number): boolean => unit === 10 || unit === 13;

/** The piece of white space at `start`: all of the run at the end of the text, else without its last. */
function spaceEnd(text: string, start: number, end: number): number {
  return end === text.length || end - start === 1 ? end : end - 1;
}

/** Length of what follows an apostrophe in 's 't 're 've 'm 'll 'd, or 0. */
function contraction(text: string, at: number, anyCase: boolean): number {
  const lower = (i: number): number => {
    const unit = text.charCodeAt(i);
    return anyCase && unit >= 65 && unit <= 90 ? unit + 32 : unit;
  };
  const first = lower(at);
  if (first === 115 || first === 116 || first === 109 || first === 100) return 1;
  const second = lower(at + 1);
  return (second === 101 && (first === 114 || first === 118)) || (first === 108 && second === 108) ? 2 : 0;
}

export function gpt2End(text: string, start: number, flags: Flags): number {
  const unit = text.charCodeAt(start);
  const short = unit === APOSTROPHE ? contraction(text, start + 1, false) : 0;
  if (short > 0) return start + 1 + short;
  const at = unit === BLANK ? start + 1 : start;
  const found = classAt(text, at, flags);
  if (found !== SPACE) return runEnd(text, at, flags, found);
  return spaceEnd(text, start, runEnd(text, start, flags, SPACE));
}

/** `digits` at a time; `longS` says whether U+017F is an s after an apostrophe, as it is without regard to case. */
export function cl100kEnd(text: string, start: number, flags: Flags, digits: number, longS: boolean): number {
  const unit = text.charCodeAt(start);
  if (unit === APOSTROPHE) {
    const short = contraction(text, start + 1, true);
    if (short > 0) return start + 1 + short;
    if (longS && text.charCodeAt(start + 1) === LONG_S) return start + 2;
  }
  const code = text.codePointAt(start) as number;
  const found = flags.of(code) & CLASSES;
  if (found === LETTER) return runEnd(text, start, flags, LETTER);
  const next = start + (code > 0xffff ? 2 : 1);
  if (found === NUMBER) return digitsEnd(text, next, flags, digits - 1);
  if (!isNewline(unit) && classAt(text, next, flags) === LETTER) return runEnd(text, next, flags, LETTER);
  const at = unit === BLANK ? next : start;
  if (classAt(text, at, flags) === 0) {
    let end = runEnd(text, at, flags, 0);
    while (end < text.length && isNewline(text.charCodeAt(end))) end++;
    return end;
  }
  const end = runEnd(text, start, flags, SPACE);
  for (let i = end - 1; i >= start; i--) if (isNewline(text.charCodeAt(i))) return i + 1;
  return spaceEnd(text, start, end);
}

function digitsEnd(text: string, start: number, flags: Flags, more: number): number {
  let at = start;
  for (let i = 0; i < more && classAt(text, at, flags) === NUMBER; i++) at += (text.codePointAt(at) as number) > 0xffff ? 2 : 1;
  return at;
}
