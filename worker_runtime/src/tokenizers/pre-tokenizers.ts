/** The program's pre-tokenisers, chained: each hands its pieces on, and stops when told that no more are wanted. */

import { type Flags, NUMERIC, PUNCTUATION, SPACE, WORD } from "./code-points";
import { type Record, refuseUnless } from "./file";
import { cl100kEnd, gpt2End } from "./patterns";

export const PreTokenizerOp = {
  spaces: 32,
  punctuation: 33,
  words: 34,
  digits: 35,
  metaspace: 36,
  split: 37,
  prefixSpace: 38,
} as const;
export const FIRST_PRE_TOKENIZER = 32;
export const LAST_PRE_TOKENIZER = 63;

const NEVER = 0;
const FIRST = 1;
const GPT2 = 0;

/** Takes a piece, which is not empty; answers whether more are wanted. */
export type Pieces = (piece: string, atStart: boolean) => boolean;

type Split = (text: string, atStart: boolean, next: Pieces) => boolean;

/** Cut where the class of characters changes; pieces of class `dropped` are left out, those of `single` are cut up. */
function byClass(classOf: (flags: number) => number, dropped: number, single: number, flags: Flags): Split {
  return (text, atStart, next) => {
    let start = 0;
    let current = -1;
    for (let i = 0; i < text.length; ) {
      const code = text.codePointAt(i) as number;
      const found = classOf(flags.of(code));
      if (i > start && (found !== current || found === single)) {
        if (current !== dropped && !next(text.slice(start, i), atStart && start === 0)) return false;
        start = i;
      }
      current = found;
      i += code > 0xffff ? 2 : 1;
    }
    return current === dropped || current === -1 || next(text.slice(start), atStart && start === 0);
  };
}

function metaspace(args: Uint32Array): Split {
  const [code, scheme, splits] = args;
  refuseUnless(splits !== undefined, "its Metaspace record is cut short");
  const mark = String.fromCodePoint(code as number);
  return (text, atStart, next) => {
    let marked = text.replaceAll(" ", mark);
    if (!marked.startsWith(mark) && scheme !== NEVER && (scheme !== FIRST || atStart)) marked = mark + marked;
    if (splits === 0) return next(marked, atStart);
    for (let start = 0; start < marked.length; ) {
      const found = marked.indexOf(mark, start + mark.length);
      const end = found < 0 ? marked.length : found;
      if (!next(marked.slice(start, end), atStart && start === 0)) return false;
      start = end;
    }
    return true;
  };
}

function byPattern([kind, digits, longS]: Uint32Array, flags: Flags): Split {
  const end =
    kind === GPT2
      ? (text: string, start: number) => gpt2End(text, start, flags)
      : (text: string, start: number) => cl100kEnd(text, start, flags, digits as number, longS === 1);
  return (text, atStart, next) => {
    for (let start = 0; start < text.length; ) {
      const stop = end(text, start);
      if (!next(text.slice(start, stop), atStart && start === 0)) return false;
      start = stop;
    }
    return true;
  };
}

function read({ op, args }: Record, flags: Flags): Split {
  const has = (bit: number) => (value: number) => ((value & bit) !== 0 ? 1 : 0);
  switch (op) {
    case PreTokenizerOp.spaces:
      return byClass(has(SPACE), 1, -1, flags);
    case PreTokenizerOp.punctuation:
      return byClass(has(PUNCTUATION), -2, 1, flags);
    case PreTokenizerOp.words:
      return byClass((value) => ((value & WORD) !== 0 ? 0 : (value & SPACE) !== 0 ? 1 : 2), 1, -1, flags);
    case PreTokenizerOp.digits:
      return byClass(has(NUMERIC), -2, args[0] === 1 ? 1 : -1, flags);
    case PreTokenizerOp.metaspace:
      return metaspace(args);
    case PreTokenizerOp.split:
      return byPattern(args, flags);
    default:
      refuseUnless(op === PreTokenizerOp.prefixSpace, `its pre-tokenizer ${op} is unknown`);
      return (text, atStart, next) => next(text.startsWith(" ") ? text : ` ${text}`, atStart);
  }
}

/** All pre-tokenisers of the program before `last`. */
export function readPreTokenizer(records: readonly Record[], flags: Flags, last: Pieces): Pieces {
  return records.reduceRight<Pieces>((next, record) => {
    const split = read(record, flags);
    return (text, atStart) => split(text, atStart, next);
  }, last);
}
