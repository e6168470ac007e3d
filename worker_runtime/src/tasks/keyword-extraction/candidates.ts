/** Phrases of a text that may be keywords. Pure. */

import { guessLanguage, isStopWord, type Language } from "./language";

interface Word {
  readonly start: number;
  readonly end: number;
  readonly stop: boolean;
}

/** Joins two words into one phrase when nothing else stands between them: "e-mail", "state-of-the-art". */
const JOINER = /^[-\u2010\u2011'\u2019\u30fb\u00b7&/]$/u;
const SPACE = /^\s+$/u;
const NUMBERS_ONLY = /^[\p{N}\p{P}\p{S}\s]+$/u;

/** Words in runs: a run ends at punctuation, at a symbol and at an empty line. */
function runsOf(text: string, language: Language): Word[][] {
  const runs: Word[][] = [[]];
  let newlines = 0;
  let joined = false;
  const segmenter = new Intl.Segmenter(language, { granularity: "word" });
  for (const { segment, index, isWordLike } of segmenter.segment(text)) {
    const run = runs.at(-1) as Word[];
    if (isWordLike === true) {
      if (newlines > 1) runs.push([]);
      (runs.at(-1) as Word[]).push({ start: index, end: index + segment.length, stop: isStopWord(segment, language) });
      newlines = 0;
      joined = false;
    } else if (SPACE.test(segment)) {
      newlines += segment.split("\n").length - 1;
      if (joined) runs.push([]);
      joined = false;
    } else if (JOINER.test(segment) && !joined && run.at(-1)?.end === index) {
      joined = true;
    } else {
      if (run.length > 0) runs.push([]);
      joined = false;
    }
  }
  return runs;
}

interface Found {
  readonly phrase: string;
  readonly position: number;
  readonly words: number;
  count: number;
}

/**
 * Up to `limit` phrases of up to `maxWords` words, as first written in the text, most frequent first, then by position.
 * No phrase starts or ends with a stop word or is only numbers; the same phrase in another case is the same.
 */
export function findCandidates(text: string, { maxWords, limit }: { readonly maxWords: number; readonly limit: number }): string[] {
  const found = new Map<string, Found>();
  for (const run of runsOf(text, guessLanguage(text))) {
    for (const [i, first] of run.entries()) {
      if (first.stop) continue;
      for (let words = 1; words <= maxWords; words++) {
        const last = run[i + words - 1];
        if (last === undefined) break;
        if (last.stop) continue;
        const phrase = text.slice(first.start, last.end).replace(/\s+/gu, " ");
        if (NUMBERS_ONLY.test(phrase)) continue;
        const key = phrase.normalize("NFKC").toLowerCase();
        const known = found.get(key);
        if (known === undefined) found.set(key, { phrase, position: first.start, words, count: 1 });
        else known.count += 1;
      }
    }
  }
  return [...found.values()]
    .sort((a, b) => b.count - a.count || a.position - b.position || a.words - b.words)
    .slice(0, limit)
    .map(({ phrase }) => phrase);
}
