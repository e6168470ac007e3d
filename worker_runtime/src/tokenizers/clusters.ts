/** Grapheme clusters as the library's crate has them (UAX 29), by the file's table. */

import { type Flags, isHangulSyllable } from "./code-points";

const CONTROL = 1;
const CR = 2;
const LF = 3;
const EXTEND = 4;
const ZWJ = 5;
const SPACING = 6;
const PREPEND = 7;
const L = 8;
const V = 9;
const T = 10;
const LV = 11;
const LVT = 12;
const PICTOGRAPH = 13;
const CLASS = 15;
/** For the conjuncts of Indic scripts. */
const CONSONANT = 16;
const LINKER = 32;
const CONJUNCT_EXTEND = 64;

function classOf(classes: Flags, code: number): number {
  if (isHangulSyllable(code)) return (code - 0xac00) % 28 === 0 ? LV : LVT;
  return classes.of(code);
}

/** Whether there is no boundary between two neighbours, as far as the two alone tell. Pairs of flags need not be told. */
function joins(before: number, after: number): boolean {
  if (before === CR) return after === LF;
  if (before === CONTROL || before === LF || after === CONTROL || after === CR || after === LF) return false;
  if (after === EXTEND || after === ZWJ || after === SPACING || before === PREPEND) return true;
  if (before === L) return after === L || after === V || after === LV || after === LVT;
  if (before === LV || before === V) return after === V || after === T;
  return (before === LVT || before === T) && after === T;
}

/**
 * Where the cluster that starts at `start` ends. Flags made of two regional indicators come apart here: a cluster of
 * eight bytes is mapped character by character all the same.
 */
export function clusterEnd(text: string, start: number, classes: Flags): number {
  let code = text.codePointAt(start) as number;
  let value = classOf(classes, code);
  let end = start + (code > 0xffff ? 2 : 1);
  // 1 after a pictograph and what extends it, 2 after a ZWJ that follows.
  let emoji = (value & CLASS) === PICTOGRAPH ? 1 : 0;
  // 1 after a consonant, 2 once a linker followed it.
  let conjunct = (value & CONSONANT) !== 0 ? 1 : 0;
  while (end < text.length) {
    const before = value & CLASS;
    code = text.codePointAt(end) as number;
    value = classOf(classes, code);
    const after = value & CLASS;
    const joined =
      joins(before, after) ||
      (emoji === 2 && after === PICTOGRAPH) ||
      (conjunct === 2 && (value & CONSONANT) !== 0);
    if (!joined) return end;
    emoji = after === PICTOGRAPH ? 1 : emoji === 1 && after === ZWJ ? 2 : emoji === 1 && after === EXTEND ? 1 : 0;
    if ((value & CONSONANT) !== 0) conjunct = 1;
    else if ((value & LINKER) !== 0) conjunct = conjunct > 0 ? 2 : 0;
    else if ((value & CONJUNCT_EXTEND) === 0) conjunct = 0;
    end += code > 0xffff ? 2 : 1;
  }
  return end;
}
