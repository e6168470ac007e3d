/** Phrases of a text that may be keywords. Pure. */

import { elisionOf, guessLanguage, isStopWord, type Language } from "./language";

interface Word {
  readonly start: number;
  readonly end: number;
  readonly stop: boolean;
  /** Says something by itself: neither a stop word nor a number. */
  readonly meaning: boolean;
}

/** Makes one word of two when nothing else stands between them: "e-mail", "state-of-the-art", "R&D". */
const JOINER = /^[-\u2010\u2011'\u2019\u30fb\u00b7&/]$/u;
const SPACE = /^\s+$/u;
const NUMBER = /^[\p{N}\p{P}\p{S}]+$/u;

function wordAt(segment: string, index: number, language: Language): Word {
  const stop = isStopWord(segment, language);
  const start = index + elisionOf(segment, language);
  return { start, end: index + segment.length, stop, meaning: !stop && !NUMBER.test(segment) };
}

/** Two letters make a word although each alone says nothing: "R&D"; two stop words do not: "and/or". */
function join(first: Word, second: Word): Word {
  const stops = first.stop && second.stop;
  const stop = stops && second.end - second.start > 1;
  return { start: first.start, end: second.end, stop, meaning: first.meaning || second.meaning || (stops && !stop) };
}

/** What stands between two words. */
type Gap = "none" | "joiner" | "space" | "boundary";

/** The gap so far, followed by one more segment that is not a word. */
function widen(gap: Gap, segment: string): Gap {
  if (SPACE.test(segment)) return gap === "none" || gap === "space" ? "space" : "boundary";
  return gap === "none" && JOINER.test(segment) ? "joiner" : "boundary";
}

/** Words in runs: a run ends at punctuation, at a symbol and at an empty line. */
function runsOf(text: string, language: Language): Word[][] {
  let run: Word[] = [];
  const runs = [run];
  let gap: Gap = "none";
  let newlines = 0;
  for (const { segment, index, isWordLike } of new Intl.Segmenter(language, { granularity: "word" }).segment(text)) {
    if (isWordLike !== true) {
      gap = widen(gap, segment);
      newlines += segment.split("\n").length - 1;
      continue;
    }
    const word = wordAt(segment, index, language);
    const last = run.at(-1);
    if (gap === "joiner" && last !== undefined) {
      run[run.length - 1] = join(last, word);
    } else {
      if (gap === "boundary" || newlines > 1) runs.push((run = []));
      run.push(word);
    }
    gap = "none";
    newlines = 0;
  }
  return runs;
}

interface Found {
  readonly phrase: string;
  readonly position: number;
  readonly words: number;
  count: number;
}

/** Every phrase of the run, in order. */
function* phrasesOf(run: readonly Word[], maxWords: number): Generator<readonly Word[]> {
  for (const [i, first] of run.entries()) {
    if (first.stop) continue;
    for (let words = 1; words <= maxWords && i + words <= run.length; words++) {
      const phrase = run.slice(i, i + words);
      if (phrase.at(-1)?.stop === false && phrase.some(({ meaning }) => meaning)) yield phrase;
    }
  }
}

/**
 * Up to `limit` phrases of up to `maxWords` words, as first written in the text, most frequent first, then by position.
 * No phrase starts or ends with a stop word or is only numbers; the same phrase in another case is the same.
 */
export function findCandidates(text: string, { maxWords, limit }: { readonly maxWords: number; readonly limit: number }): string[] {
  const found = new Map<string, Found>();
  for (const run of runsOf(text, guessLanguage(text))) {
    for (const words of phrasesOf(run, maxWords)) {
      const position = (words[0] as Word).start;
      const phrase = text.slice(position, (words.at(-1) as Word).end).replace(/\s+/gu, " ");
      const key = phrase.normalize("NFKC").toLowerCase();
      const known = found.get(key);
      if (known === undefined) found.set(key, { phrase, position, words: words.length, count: 1 });
      else known.count += 1;
    }
  }
  return [...found.values()]
    .sort((a, b) => b.count - a.count || a.position - b.position || a.words - b.words)
    .slice(0, limit)
    .map(({ phrase }) => phrase);
}
