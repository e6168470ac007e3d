/** Phrases of the text that say what it is about: candidates by segmentation, ranked by embedding, then diversified. */

import { ConfigError } from "../../config";
import { invalidRequest } from "../../http";
import { type Infer, rounded, type TaskType } from "../task";
import { normalized } from "../vectors";
import { findCandidates } from "./candidates";
import { selectDiverse } from "./mmr";

/** Candidates that are embedded: this bounds the CPU a request can cost. */
export const MAX_CANDIDATES = 64;
const MAX_TOP_K = 50;

interface Options {
  readonly topK: number;
  readonly diversity: number;
  readonly maxWords: number;
}

const isTopK = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_TOP_K;
const isDiversity = (value: unknown): value is number => typeof value === "number" && value >= 0 && value <= 1;

function extract({ topK, diversity, maxWords }: Options): Infer {
  return async (text, model) => {
    const tokens = model.encode(text);
    const candidates = findCandidates(text, { maxWords, limit: MAX_CANDIDATES });
    const texts = [tokens, ...candidates.map((candidate) => model.encode(candidate))];
    const [document, ...vectors] = (await model.runMany(texts)).map(normalized) as [Float64Array, ...Float64Array[]];
    const keywords = selectDiverse(document, vectors, { count: topK, diversity }).map(({ index, score }) => ({
      text: candidates[index],
      score: rounded(score),
    }));
    return { keywords, tokens: tokens.count, truncated: tokens.truncated };
  };
}

export const keywordExtraction: TaskType = (settings) => {
  const { top_k: topK, diversity, max_words: maxWords } = settings;
  if (!isTopK(topK)) throw new ConfigError(`config.json: task.top_k must be an integer from 1 to ${MAX_TOP_K}`);
  if (!isDiversity(diversity)) throw new ConfigError("config.json: task.diversity must be a number from 0 to 1");
  if (!Number.isInteger(maxWords) || (maxWords as number) < 1) {
    throw new ConfigError("config.json: task.max_words must be an integer >= 1");
  }
  return {
    fields: ["top_k", "diversity"],
    prepare(fields) {
      const given = (name: string, otherwise: unknown) => (fields.has(name) ? fields.get(name) : otherwise);
      const asked = { topK: given("top_k", topK), diversity: given("diversity", diversity) };
      if (!isTopK(asked.topK)) throw invalidRequest(`top_k must be an integer from 1 to ${MAX_TOP_K}.`);
      if (!isDiversity(asked.diversity)) throw invalidRequest("diversity must be a number from 0 to 1.");
      return extract({ topK: asked.topK, diversity: asked.diversity, maxWords: maxWords as number });
    },
  };
};
