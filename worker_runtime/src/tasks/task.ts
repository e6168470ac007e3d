/** What a task is. Implementations are registered in `tasks/index.ts`. */

import type { ModelInfo, TaskSettings } from "../config";
import type { Tokens } from "../tokenizer";

/** The model as a task sees it. */
export interface TextModel {
  encode(text: string): Tokens;
  /** The model's output for one text; every number is finite. */
  run(tokens: Tokens): Promise<Float32Array>;
  /** The same for each text, together where the engine can. */
  runMany(texts: readonly Tokens[]): Promise<Float32Array[]>;
}

export type Result = Readonly<Record<string, unknown>>;
export type Infer = (text: string, model: TextModel) => Promise<Result>;

/** A task with one artifact's settings. */
export interface Task {
  /** Fields of the request's body that this task knows beside `text` and `texts`. */
  readonly fields: readonly string[];
  /** Read those fields, once a request; raises HttpError 400 that names the field. */
  prepare(fields: ReadonlyMap<string, unknown>): Infer;
}

/** Label -> what people are shown for it. */
export type Display = ReadonlyMap<string, string>;

/** Raises ConfigError when the settings do not fit the task or the model. */
export type TaskType = (settings: TaskSettings, model: ModelInfo, display: Display) => Task;

/** Six significant digits: what float32 arithmetic on quantised weights can promise, in short JSON. */
export const rounded = (value: number): number => Number(value.toPrecision(6));
