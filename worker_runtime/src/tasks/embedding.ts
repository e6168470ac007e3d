/** The text's embedding, of length one where the task says `normalize`. */

import { rounded, type TaskType } from "./task";
import { normalized } from "./vectors";

export const embedding: TaskType = (settings) => ({
  fields: [],
  prepare: () => async (text, model) => {
    const tokens = model.encode(text);
    const output = await model.run(tokens);
    const vector = settings["normalize"] === true ? normalized(output) : output;
    return { embedding: Array.from(vector, rounded), tokens: tokens.count, truncated: tokens.truncated };
  },
});
