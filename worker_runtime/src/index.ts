/** The Worker. A configuration that does not fit raises while the script starts, so that it never goes live. */

import source from "./config.json";
import { parseConfig } from "./config";
import { ModelStore } from "./models";
import { type App, handle } from "./router";
import { createTask } from "./tasks";

const config = parseConfig(source);
const tasks = new Map(config.shards.map(({ artifact }) => [artifact, createTask(artifact, config.display)]));
let app: App | undefined;

export default {
  fetch(request, env, context) {
    app ??= { config, tasks, models: new ModelStore(config, env) };
    return handle(request, app, context);
  },
} satisfies ExportedHandler<Record<string, unknown>>;
