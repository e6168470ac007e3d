/** One label for a text (softmax), or any number of labels above the threshold (`multi_label`, sigmoid). */

import { ConfigError } from "../config";
import { type Display, type Result, rounded, type TaskType } from "./task";
import { sigmoid, softmax } from "./vectors";

/** In the order of `labels`; own properties even for a label such as `__proto__`. */
function scoresOf(labels: readonly string[], scores: readonly number[]): Record<string, number> {
  return Object.fromEntries(labels.map((label, i) => [label, rounded(scores[i] as number)]));
}

/** The label with the highest score; of equal ones the first in `labels`. */
function single(labels: readonly string[], logits: Float32Array): Result {
  const scores = softmax(logits);
  const best = scores.indexOf(Math.max(...scores));
  return { label: labels[best], score: rounded(scores[best] as number), scores: scoresOf(labels, scores) };
}

/** The labels at or above the threshold, the highest score first. */
function multiple(labels: readonly string[], logits: Float32Array, threshold: number): Result {
  const scores = Array.from(logits, sigmoid);
  const chosen = labels
    .map((label, i) => ({ label, score: scores[i] as number }))
    .filter(({ score }) => score >= threshold)
    .sort((a, b) => b.score - a.score);
  return { labels: chosen.map(({ label }) => label), scores: scoresOf(labels, scores) };
}

/** The display text of the label, or of each of the labels in their order; a label without one stands for itself. */
function shown(result: Result, display: Display): Result {
  const of = (label: string) => display.get(label) ?? label;
  const { label, labels } = result as { label?: string; labels?: string[] };
  const [first, ...rest] = Object.entries(result);
  const text = label === undefined ? (labels ?? []).map(of) : of(label);
  return Object.fromEntries([first as [string, unknown], ["display", text], ...rest]);
}

export const textClassification: TaskType = (settings, model, display) => {
  const labels = settings["labels"];
  const threshold = settings["threshold"] ?? 0.5;
  if (!Array.isArray(labels) || !labels.every((label) => typeof label === "string") || labels.length !== model.dimensions) {
    throw new ConfigError(`config.json: task.labels must be ${model.dimensions} strings, as many as the model has outputs`);
  }
  if (typeof threshold !== "number") throw new ConfigError("config.json: task.threshold must be a number");
  const names: readonly string[] = labels;
  const choose = settings["multi_label"] === true
    ? (logits: Float32Array) => multiple(names, logits, threshold)
    : (logits: Float32Array) => single(names, logits);
  const decide = (logits: Float32Array) => (display.size === 0 ? choose(logits) : shown(choose(logits), display));
  return {
    fields: [],
    prepare: () => async (text, textModel) => {
      const tokens = textModel.encode(text);
      return { ...decide(await textModel.run(tokens)), tokens: tokens.count, truncated: tokens.truncated };
    },
  };
};
