/** The task types, by the name that a spec gives. */

import { type Artifact, ConfigError } from "../config";
import { embedding } from "./embedding";
import { keywordExtraction } from "./keyword-extraction";
import type { Display, Task, TaskType } from "./task";
import { textClassification } from "./text-classification";

const TASKS: ReadonlyMap<string, TaskType> = new Map([
  ["text-classification", textClassification],
  ["keyword-extraction", keywordExtraction],
  ["embedding", embedding],
]);

/** `display` is what people are shown for labels. Raises ConfigError for a type that this bundle does not know. */
export function createTask({ task, model }: Artifact, display: Display): Task {
  const type = TASKS.get(task.type);
  if (type === undefined) throw new ConfigError(`config.json: task ${task.type} is not one of ${[...TASKS.keys()].join(", ")}`);
  return type(task, model, display);
}
