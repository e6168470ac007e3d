/** Requests to answers. */

import type { Artifact, Shard, WorkerConfig } from "./config";
import { engineMemory } from "./engines";
import { errorResponse, HttpError, json, readJson } from "./http";
import type { Model, ModelStore } from "./models";
import { page } from "./page";
import { parseInferRequest } from "./request";
import { chooseShard, originOf } from "./shards";
import type { Result, Task, TextModel } from "./tasks/task";
import type { Tokens } from "./tokenizer";
import { WeightsUnavailable } from "./weights";

/** What lives as long as the isolate. */
export interface App {
  readonly config: WorkerConfig;
  readonly tasks: ReadonlyMap<Artifact, Task>;
  readonly models: ModelStore;
}

type Handler = (request: Request, app: App, context: ExecutionContext) => Response | Promise<Response>;

const shortDigest = (artifact: Artifact): string => artifact.digest.slice(0, 12);

function finite(output: Float32Array): Float32Array {
  if (!output.every(Number.isFinite)) throw new Error("the model's output has numbers that are not finite");
  return output;
}

/** A tokenizer without special tokens may leave nothing of a text, such as one of control characters. */
function encoded(tokens: Tokens): Tokens {
  if (tokens.count > 0) return tokens;
  throw new HttpError(422, "invalid_text", "The model's tokenizer leaves nothing of the text. Send a text with letters or digits.");
}

function textModel({ tokenizer, engine }: Model, maxTokens: number): TextModel {
  return {
    encode: (text) => encoded(tokenizer.encode(text, maxTokens)),
    run: async (tokens) => finite(await engine.run(tokens)),
    runMany: async (texts) => (await engine.runMany(texts)).map(finite),
  };
}

async function infer(request: Request, app: App, context: ExecutionContext): Promise<Response> {
  const shard = chooseShard(app.config, originOf(request));
  const task = app.tasks.get(shard.artifact) as Task;
  const { limits } = app.config;
  const { texts, many, fields } = parseInferRequest(await readJson(request, limits.bodyBytes), limits, task.fields);
  const work = task.prepare(fields);
  const results = await app.models.use(shard, context, async (model) => {
    const found: Result[] = [];
    for (const text of texts) found.push(await work(text, textModel(model, shard.artifact.task.max_tokens)));
    return found;
  });
  const head = { model: app.config.name, artifact: shortDigest(shard.artifact), shard: shard.name };
  return json(many ? { ...head, results } : { ...head, result: results[0] });
}

const status = ({ config, models }: App, shard: Shard) => ({
  status: "ok",
  model: config.name,
  artifact: shortDigest(shard.artifact),
  shard: shard.name,
  loaded: models.isLoaded(shard.artifact),
});

async function health(request: Request, app: App, context: ExecutionContext): Promise<Response> {
  const shard = chooseShard(app.config, originOf(request));
  if (new URL(request.url).searchParams.get("load") !== "1") return json(status(app, shard));
  const { report, engine } = await app.models.use(shard, context, async (model) => model);
  return json({
    ...status(app, shard),
    memory: { wasm: engineMemory(), weights: app.models.memory.bytes, ceiling: app.models.memory.ceiling },
    engine: { name: shard.artifact.engine, ...(engine.kind === undefined ? {} : { kind: engine.kind }) },
    tiers: report.tiers,
    load_ms: report.milliseconds,
  });
}

const ROUTES: ReadonlyMap<string, ReadonlyMap<string, Handler>> = new Map([
  ["/", new Map<string, Handler>([["GET", (_, { config }) => page(config)]])],
  ["/healthz", new Map<string, Handler>([["GET", health]])],
  ["/infer", new Map<string, Handler>([["POST", infer]])],
]);

/** The methods a route answers, HEAD and OPTIONS included. */
function allowed(methods: Iterable<string>): string {
  return [...methods].flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : [method])).concat("OPTIONS").join(", ");
}

async function route(request: Request, app: App, context: ExecutionContext): Promise<Response> {
  const { pathname } = new URL(request.url);
  const methods = ROUTES.get(pathname);
  if (methods === undefined) {
    throw new HttpError(404, "not_found", `There is nothing at this path. Use ${[...ROUTES.keys()].join(", ")}.`);
  }
  const allow = { allow: allowed(methods.keys()) };
  if (request.method === "OPTIONS") return new Response(null, { status: 204, headers: allow });
  const handler = methods.get(request.method === "HEAD" ? "GET" : request.method);
  if (handler === undefined) {
    throw new HttpError(405, "method_not_allowed", `${pathname} does not take ${request.method}. Use ${allow.allow}.`, allow);
  }
  return handler(request, app, context);
}

function toHttpError(error: unknown): HttpError {
  if (error instanceof HttpError) return error;
  if (error instanceof WeightsUnavailable) {
    const message = `The model cannot be loaded now: ${error.message}. Try again; if it stays, apply the spec again.`;
    return new HttpError(503, "weights_unavailable", message, { "retry-after": "5" });
  }
  console.error(error);
  return new HttpError(500, "internal_error", "The Worker failed. Its log says why.");
}

export async function handle(request: Request, app: App, context: ExecutionContext): Promise<Response> {
  const response = await route(request, app, context).catch((error: unknown) => errorResponse(toHttpError(error)));
  return request.method === "HEAD" ? new Response(null, response) : response;
}
