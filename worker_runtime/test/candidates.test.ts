/** Which phrases are candidates: pure code, so tested without a Worker; tasks.test.ts sees it in workerd. */

import { describe, expect, test } from "vitest";
import { findCandidates } from "../src/tasks/keyword-extraction/candidates.ts";
import { guessLanguage } from "../src/tasks/keyword-extraction/language.ts";
import { selectDiverse } from "../src/tasks/keyword-extraction/mmr.ts";

const find = (text: string, maxWords = 3, limit = 1000) => findCandidates(text, { maxWords, limit });

describe("candidates", () => {
  test("do not cross punctuation or an empty line, but do cross a line's end", () => {
    expect(find("red car, blue\nhouse\n\ngreen tree")).toEqual([
      "red", "red car", "car", "blue", "blue house", "house", "green", "green tree", "tree",
    ]);
  });

  test("may hold a stop word inside, never at an end", () => {
    expect(find("The state of the art is here", 4)).toEqual(["state", "state of the art", "art"]);
  });

  test("take words that a hyphen or the like joins as one", () => {
    expect(find("well-known e-mail of R&D", 1)).toEqual(["well-known", "e-mail", "R&D"]);
    expect(find("a state-of-the-art lamp - or so", 2)).toEqual(["state-of-the-art", "state-of-the-art lamp", "lamp"]);
  });

  test("leave out articles that are run together with the word", () => {
    expect(find("Je veux l'eau de l\u2019\u00e9t\u00e9 et c'est tout", 1)).toEqual(["veux", "eau", "\u00e9t\u00e9"]);
  });

  test("count the same phrase in another case once, as first written, and put the frequent first", () => {
    expect(find("Rain here. Sun. RAIN again, rain", 1)).toEqual(["Rain", "Sun"]);
  });

  test("are not numbers only", () => {
    expect(find("room 101, 3.14 or 1,000")).toEqual(["room", "room 101"]);
  });

  test("are at most `limit`, always the same ones", () => {
    const text = Array.from({ length: 500 }, (_, i) => `word${i}`).join(" ");
    expect(find(text, 3, 64)).toHaveLength(64);
    expect(find(text, 3, 64)).toEqual(find(text, 3, 64));
  });

  test("are found without spaces between words", () => {
    expect(find("机器学习模型在边缘运行", 2)).toContain("机器学习");
    expect(find("東京は日本の首都です", 1)).toEqual(["東京", "日本", "首都"]);
    expect(find("ฉันชอบกินข้าวผัด", 1)).not.toContain("ฉัน");
  });

  test.each(["", "   ", "...", "🙂🙂", "\u0301", "👨‍👩‍👧‍👦 ❤️"])("of %j are none", (text) => {
    expect(find(text)).toEqual([]);
  });
});

test.each([
  ["Where is my parcel and when will it be here?", "en"],
  ["Wo ist mein Paket und wann wird es geliefert?", "de"],
  ["Où est mon colis et quand sera-t-il livré chez nous ?", "fr"],
  ["¿Dónde está mi paquete y cuándo lo van a entregar?", "es"],
  ["Dov'è il mio pacco e quando sarà consegnato alla mia porta?", "it"],
  ["Onde está a minha encomenda e quando será entregue?", "pt"],
  ["Waar is mijn pakket en wanneer wordt het bezorgd?", "nl"],
  ["Где моя посылка?", "ru"],
  ["我的包裹在哪里？", "zh"],
  ["私の荷物はどこですか？", "ja"],
  ["내 소포는 어디에 있나요?", "ko"],
  ["พัสดุของฉันอยู่ที่ไหน", "th"],
  ["", "en"],
])("%j is %s", (text, language) => {
  expect(guessLanguage(text)).toBe(language);
});

describe("maximal marginal relevance", () => {
  const document = Float64Array.of(1, 0);
  const at = (degrees: number) => Float64Array.of(Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180));
  const pick = (angles: number[], diversity: number, count = 2) =>
    selectDiverse(document, angles.map(at), { count, diversity }).map(({ index }) => angles[index]);

  test("without diversity takes the nearest", () => expect(pick([5, 6, -40], 0)).toEqual([5, 6]));
  test("with diversity takes what says something else", () => expect(pick([5, 6, -40], 0.7)).toEqual([5, -40]));
  test("takes the earlier of equals", () => {
    expect(selectDiverse(document, [at(9), at(9)], { count: 1, diversity: 0.5 })[0]?.index).toBe(0);
  });
  test("takes at most all", () => expect(pick([1, 2], 1, 9)).toHaveLength(2));
});
