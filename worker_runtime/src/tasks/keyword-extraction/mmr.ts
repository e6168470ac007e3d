/** Maximal marginal relevance (Carbonell and Goldstein, 1998). Pure. */

import { dot } from "../vectors";

export interface Selected {
  /** Into `candidates`. */
  readonly index: number;
  /** Cosine with the document. */
  readonly score: number;
}

/**
 * Pick `count` candidates that are near the document and far from each other, and order them by score.
 * All vectors have length one. With diversity 0 only the document counts, with 1 only the distance to what is already
 * picked. Of equals the earlier candidate wins.
 */
export function selectDiverse(
  document: Float64Array,
  candidates: readonly Float64Array[],
  { count, diversity }: { readonly count: number; readonly diversity: number },
): Selected[] {
  const scores = candidates.map((vector) => dot(document, vector));
  const nearest = candidates.map(() => -Infinity);
  const left = new Set(candidates.keys());
  const picked: Selected[] = [];
  while (picked.length < count && left.size > 0) {
    let best = -1;
    let bestValue = -Infinity;
    for (const index of left) {
      const score = scores[index] as number;
      const value = picked.length === 0 ? score : (1 - diversity) * score - diversity * (nearest[index] as number);
      if (value > bestValue) [best, bestValue] = [index, value];
    }
    left.delete(best);
    picked.push({ index: best, score: scores[best] as number });
    for (const index of left) {
      const similarity = dot(candidates[index] as Float64Array, candidates[best] as Float64Array);
      nearest[index] = Math.max(nearest[index] as number, similarity);
    }
  }
  return picked.sort((a, b) => b.score - a.score || a.index - b.index);
}
