/** The program's normalisers, each a function from text to text. */

import { Charsmap } from "./charsmap";
import { CodePointMap, Flags, SPACE } from "./code-points";
import { type Record, refuseUnless, type TokenizerFile } from "./file";
import { Form } from "./forms";

export const NormalizerOp = {
  map: 1,
  form: 2,
  charsmap: 3,
  replace: 4,
  runs: 5,
  strip: 6,
  prepend: 7,
  when: 8,
} as const;
export const LAST_NORMALIZER = 31;

/** Where a text stands: a long one is normalised in parts. Normalisers may clear `atStart`. */
export interface Place {
  /** Whether it is the first part of what is normalised as one. */
  readonly first: boolean;
  readonly last: boolean;
  /** Whether the first character left comes from the first of the whole input. */
  atStart: boolean;
}

type Normalize = (text: string, place: Place) => string;

const toText = (codes: Uint32Array): string => String.fromCodePoint(...codes);

/** Leave out spaces at the ends; parts of one text have their outer ends only. */
function strip(left: boolean, right: boolean, flags: Flags): Normalize {
  const isSpace = (text: string, at: number) => (flags.of(text.charCodeAt(at)) & SPACE) !== 0;
  return (text, place) => {
    let start = 0;
    let end = text.length;
    if (left && place.first) while (start < end && isSpace(text, start)) start++;
    if (right && place.last) while (end > start && isSpace(text, end - 1)) end--;
    if (start > 0) place.atStart = false;
    return text.slice(start, end);
  };
}

function replace(pattern: string, content: string): Normalize {
  const keepsStart = [...pattern].length === 1 && content !== "";
  return (text, place) => {
    if (!keepsStart && text.startsWith(pattern)) place.atStart = false;
    return text.replaceAll(pattern, () => content);
  };
}

/** Runs of at least `least` spaces (U+0020 only, or all white space) become `content`. */
function replaceRuns(only: boolean, least: number, content: string, flags: Flags): Normalize {
  const isSpace = (code: number) => (only ? code === 32 : (flags.of(code) & SPACE) !== 0);
  return (text, place) => {
    let out = "";
    let copied = 0;
    for (let i = 0; i < text.length; i++) {
      if (!isSpace(text.charCodeAt(i))) continue;
      const start = i;
      while (i + 1 < text.length && isSpace(text.charCodeAt(i + 1))) i++;
      if (i + 1 - start < least) continue;
      if (start === 0 && (i > 0 || content === "")) place.atStart = false;
      out += text.slice(copied, start) + content;
      copied = i + 1;
    }
    return copied === 0 ? text : out + text.slice(copied);
  };
}

function read(file: TokenizerFile, { op, args }: Record, flags: Flags): Normalize {
  if (op === NormalizerOp.map) {
    const map = new CodePointMap(file, args[0]);
    return (text, place) => {
      if (text !== "" && map.drops(text.codePointAt(0) as number)) place.atStart = false;
      return map.apply(text);
    };
  }
  if (op === NormalizerOp.form) {
    const form = new Form(file, args);
    return (text) => form.apply(text);
  }
  if (op === NormalizerOp.charsmap) {
    const charsmap = new Charsmap(file, args);
    return (text) => charsmap.apply(text);
  }
  if (op === NormalizerOp.replace) {
    const length = args[0] ?? 0;
    refuseUnless(length > 0 && length < args.length + 1, "its replacement has no pattern");
    return replace(toText(args.subarray(1, 1 + length)), toText(args.subarray(1 + length)));
  }
  if (op === NormalizerOp.runs) {
    refuseUnless(args.length >= 2, "its replacement of runs is cut short");
    return replaceRuns(args[0] === 1, args[1] as number, toText(args.subarray(2)), flags);
  }
  if (op === NormalizerOp.strip) return strip(args[0] === 1, args[1] === 1, flags);
  refuseUnless(op === NormalizerOp.prepend, `its normalizer ${op} is unknown`);
  const prefix = toText(args);
  return (text, place) => (text === "" || !place.first ? text : prefix + text);
}

/** All normalisers of the program as one. */
export function readNormalizer(file: TokenizerFile, records: readonly Record[], flags: Flags): Normalize {
  const steps: Normalize[] = [];
  for (let at = 0; at < records.length; at++) {
    const record = records[at] as Record;
    if (record.op !== NormalizerOp.when) {
      steps.push(read(file, record, flags));
      continue;
    }
    const [section, count] = record.args;
    refuseUnless(count !== undefined && at + count < records.length, "its condition covers more than there is");
    const inner = readNormalizer(file, records.slice(at + 1, at + 1 + count), flags);
    const condition = new Flags(file, section);
    steps.push((text, place) => (condition.any(text) ? inner(text, place) : text));
    at += count;
  }
  return (text, place) => {
    let result = text;
    for (const step of steps) result = step(result, place);
    return result;
  };
}
