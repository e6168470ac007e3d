/** The language of a text, as far as segmentation and stop words need it. Pure. */

import { STOP_WORDS } from "./stop-words";

/** A BCP 47 tag for `Intl.Segmenter`. */
export type Language = string;

/** Scripts that say the language by themselves, in the order in which they are tried: kana before Han. */
const SCRIPTS: readonly (readonly [RegExp, Language])[] = [
  [/[\p{Script=Hiragana}\p{Script=Katakana}]/gu, "ja"],
  [/\p{Script=Han}/gu, "zh"],
  [/\p{Script=Thai}/gu, "th"],
  [/\p{Script=Lao}/gu, "lo"],
  [/\p{Script=Khmer}/gu, "km"],
  [/\p{Script=Myanmar}/gu, "my"],
  [/\p{Script=Hangul}/gu, "ko"],
  [/\p{Script=Cyrillic}/gu, "ru"],
];
const LATIN: readonly Language[] = ["en", "de", "fr", "es", "it", "pt", "nl"];
const SAMPLE = 2000;
/** Japanese mixes kana and Han: this share of kana among a text's letters is enough. */
const SHARE: Readonly<Record<string, number>> = { ja: 0.1 };

/** One stop word says little: "car" is French for "because". */
const MIN_HITS = 2;

/** By script; among languages in Latin letters, the one whose stop words are most frequent, else English. */
export function guessLanguage(text: string): Language {
  const sample = text.slice(0, SAMPLE);
  const letters = sample.match(/\p{L}/gu)?.length ?? 0;
  for (const [script, language] of SCRIPTS) {
    const share = (sample.match(script)?.length ?? 0) / Math.max(1, letters);
    if (share > (SHARE[language] ?? 0.3)) return language;
  }
  const words = sample.toLowerCase().match(/[\p{L}\p{M}]+/gu) ?? [];
  const hits = (language: Language) => words.filter((word) => STOP_WORDS.get(language)?.has(word)).length;
  const counts = LATIN.map((language) => ({ language, count: hits(language) }));
  const better = counts.filter(({ language, count }) => language === "en" || count >= MIN_HITS);
  return better.reduce((best, next) => (next.count > best.count ? next : best)).language;
}

const ELISION: ReadonlyMap<Language, RegExp> = new Map([
  ["fr", /^(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu)['\u2019](?=\p{L})/iu],
  ["it", /^(?:[cdlmnstv]|un|all|dall|dell|nell|sull|quell|quest)['\u2019](?=\p{L})/iu],
]);

/** Characters at a word's start that are an article or the like, run together with it: "l'" of "l'eau". */
export function elisionOf(word: string, language: Language): number {
  return ELISION.get(language)?.exec(word)?.[0].length ?? 0;
}

const ONE_LETTER = /^[\p{Script=Latin}\p{Script=Cyrillic}\p{Script=Hiragana}]$/u;

export function isStopWord(word: string, language: Language): boolean {
  const lower = word.toLowerCase().replaceAll("\u2019", "'");
  return ONE_LETTER.test(lower) || (STOP_WORDS.get(language)?.has(lower) ?? false);
}
