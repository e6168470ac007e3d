// The local edge as a process: node main.mjs --dir STATE_DIR --port N [--inspector-port N]
// Reads STATE_DIR/credentials.json; writes STATE_DIR/edge.json once it listens; one JSON line a request on stdout.

import fs from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import workerd, { compatibilityDate, version as workerdVersion } from "workerd";
import { Api } from "./api.mjs";
import { Buckets } from "./buckets.mjs";
import { Kv } from "./kv.mjs";
import { adoptWorkerd, reap, startedAt } from "./processes.mjs";
import { Routing } from "./routing.mjs";
import { Runtime } from "./runtime.mjs";
import { S3 } from "./s3.mjs";
import { Scripts } from "./scripts.mjs";
import { Server } from "./server.mjs";
import { replace, Store } from "./store.mjs";

const GRACE_MS = 5_000;

const { values: args } = parseArgs({
  options: { dir: { type: "string" }, port: { type: "string" }, "inspector-port": { type: "string" } },
});
if (!args.dir || !args.port) fail("usage: node main.mjs --dir STATE_DIR --port N [--inspector-port N]");

function log(line) {
  process.stdout.write(`${JSON.stringify({ time: new Date().toISOString(), ...line })}\n`);
}

// What it ends with when somebody else has the port: edgespec then tries another, where it may choose.
const PORT_TAKEN = 98;

function fail(message, code = 1) {
  process.stderr.write(`${message}\n`);
  process.exit(code);
}

async function main() {
  const dir = path.resolve(args.dir);
  refuseSecond(dir);
  const credentials = JSON.parse(fs.readFileSync(path.join(dir, "credentials.json"), "utf8"));
  const ended = adoptWorkerd(dir, workerd.default);
  // miniflare's temporary files go where a killed edge's are found and removed.
  process.env.TMPDIR = path.join(dir, "run", "tmp");
  fs.rmSync(process.env.TMPDIR, { recursive: true, force: true });
  fs.mkdirSync(process.env.TMPDIR, { recursive: true });
  if (ended > 0) log({ event: "reaped", processes: ended });
  const store = new Store(dir);
  const runtime = new Runtime(store, { inspectorPort: args["inspector-port"] === undefined ? undefined : Number(args["inspector-port"]), log });
  const buckets = new Buckets(store, runtime);
  const scripts = new Scripts(store, runtime);
  const api = new Api(credentials, [scripts, new Kv(store, runtime), buckets]);
  const routing = new Routing(store, runtime, Number(args.port));
  const begun = Date.now();
  let stopping = false;

  const stop = async () => {
    if (stopping) return;
    stopping = true;
    log({ event: "stopping" });
    fs.rmSync(path.join(dir, "edge.json"), { force: true });
    await server.close(GRACE_MS);
    await runtime.stop();
    reap(path.join(dir, "run", "workerd"));
    log({ event: "stopped" });
    process.exit(0);
  };
  const status = async () => ({
    pid: process.pid,
    version: JSON.parse(fs.readFileSync(new URL("./package.json", import.meta.url), "utf8")).version,
    workerd: workerdVersion,
    compatibility_date: compatibilityDate,
    uptime_s: Math.round((Date.now() - begun) / 1000),
    dir,
    inspector: await runtime.inspector(),
    reloads: runtime.reloads,
    scripts: Object.keys(store.state.scripts).sort(),
    buckets: Object.keys(store.state.buckets).sort(),
    namespaces: Object.values(store.state.namespaces).map((n) => n.title).sort(),
  });
  const server = new Server({ api, s3: new S3(store, runtime, buckets, credentials), routing, status, shutdown: () => void stop(), dir, log });

  await runtime.start();
  for (const signal of ["SIGTERM", "SIGINT"]) {
    // miniflare's own listeners end the process at once; this one lets the requests in flight end first.
    process.removeAllListeners(signal);
    process.on(signal, () => void stop());
  }
  routing.port = await server.listen(Number(args.port));
  replace(path.join(dir, "edge.json"), JSON.stringify({ pid: process.pid, started: startedAt(process.pid), port: routing.port }), 0o600);
  log({ event: "listening", port: routing.port, workerd: workerdVersion });
}

/** Two edges on one folder would write over each other. */
function refuseSecond(dir) {
  let running;
  try {
    running = JSON.parse(fs.readFileSync(path.join(dir, "edge.json"), "utf8"));
  } catch {
    return;
  }
  if (running.pid !== process.pid && running.started && startedAt(running.pid) === running.started) {
    fail(`an edge for ${dir} is running already, as process ${running.pid} on port ${running.port}`);
  }
}

main().catch((error) => {
  if (error.code === "EADDRINUSE" && error.port === Number(args.port)) {
    fail(`port ${args.port} of 127.0.0.1 is in use`, PORT_TAKEN);
  }
  fail(error.stack ?? String(error));
});
