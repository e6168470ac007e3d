// Measures Workers of a local edge through workerd's inspector: node profile.mjs, one JSON call a line on stdin, one
// JSON answer a line on stdout, in order. It computes nothing: what counts as CPU is edgespec/measurement.py's business.
//
//   {"op": "burst", "inspector": "http://127.0.0.1:N", "worker": "<name>", "process": pid, "interval_us": 250, "requests": [R, ...]}
//     -> {"requests": [[start, end, cpu], ...], "end": [time, cpu], "samples": [[time, kind], ...]}; microseconds, times of
//        one monotonic clock; cpu: what the system has given to workerd's serving thread so far, null where it does not
//        tell; kind: "idle", "program", "gc" or "run"; no samples without `interval_us`
//   {"op": "memory", "inspector": ..., "worker": ...}
//     -> {"heap": bytes, "buffers": bytes}; garbage that is not yet collected is in it: workerd answers no
//        HeapProfiler.collectGarbage
//   {"op": "peak", "inspector": ..., "worker": ..., "text": "...", "requests": [R, ...]}
//     -> {"heap": bytes, "buffers": bytes, "pauses": n}; the most that both were together before the requests and each
//        time that the Worker came to where its script has that text; there it was held by a breakpoint
//   R: {"url": ..., "body": {...} | absent}
//
// A call that fails answers {"error": "..."}.

import fs from "node:fs";
import readline from "node:readline";

const ANSWER_MS = 120_000;
const INSPECTOR_MS = 60_000;
const KINDS = new Map([["(idle)", "idle"], ["(program)", "program"], ["(root)", "program"], ["(garbage collector)", "gc"]]);

/** Microseconds of the clock that V8 stamps samples with (CLOCK_MONOTONIC, or what stands for it). */
const now = () => Number(process.hrtime.bigint() / 1000n);

/** Microseconds of CPU of a process's first thread, which serves workerd's requests (Linux); null elsewhere. */
function cpuOf(pid) {
  try {
    return Number(fs.readFileSync(`/proc/${pid}/task/${pid}/schedstat`, "utf8").split(" ")[0]) / 1000;
  } catch {
    return null;
  }
}

/** One Worker's inspector. */
class Inspector {
  #socket;
  #waiting = new Map();
  #listeners = new Map();
  #sent = 0;

  static async open(base, worker) {
    const targets = await (await fetch(new URL("/json", base))).json();
    const target = targets.find(({ id }) => id === `core:user:${worker}`);
    if (!target) throw new Error(`the inspector lists no Worker ${worker}; it has ${targets.map(({ id }) => id).join(", ")}`);
    const url = new URL(`/${target.id}`, base);
    url.protocol = "ws:";
    const inspector = new Inspector();
    inspector.#socket = new WebSocket(url);
    await new Promise((resolve, reject) => {
      inspector.#socket.addEventListener("open", resolve);
      inspector.#socket.addEventListener("error", () => reject(new Error(`the inspector at ${url} does not answer`)));
    });
    inspector.#socket.addEventListener("message", ({ data }) => inspector.#receive(JSON.parse(String(data))));
    inspector.#socket.addEventListener("close", () => inspector.#fail(new Error("the inspector closed the connection")));
    return inspector;
  }

  call(method, params = {}) {
    const id = (this.#sent += 1);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`the inspector did not answer ${method}`)), INSPECTOR_MS);
      const settled = (then) => (value) => (clearTimeout(timer), then(value));
      this.#waiting.set(id, { resolve: settled(resolve), reject: settled(reject) });
      this.#socket.send(JSON.stringify({ id, method, params }));
    });
  }

  close() {
    this.#socket.close();
  }

  /** Hear of an event. */
  listen(method, heard) {
    this.#listeners.set(method, heard);
  }

  #receive({ id, result, error, method, params }) {
    if (id === undefined) return this.#listeners.get(method)?.(params);
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error) waiting?.reject(new Error(error.message));
    else waiting?.resolve(result);
    return undefined;
  }

  #fail(error) {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}

async function send({ url, body }) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const answer = await fetch(url, { ...options, signal: AbortSignal.timeout(ANSWER_MS) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}: ${text.slice(0, 300)}`);
}

async function sendAll(requests, pid) {
  const rows = [];
  for (const request of requests) {
    const cpu = cpuOf(pid);
    const start = now();
    await send(request);
    rows.push([start, now(), cpu]);
  }
  return { requests: rows, end: [now(), cpuOf(pid)] };
}

async function burst({ inspector: base, worker, process: pid, interval_us: interval, requests }) {
  if (interval === undefined) return sendAll(requests, pid);
  const inspector = await Inspector.open(base, worker);
  try {
    await inspector.call("Profiler.enable");
    await inspector.call("Profiler.setSamplingInterval", { interval });
    await inspector.call("Profiler.start");
    const sent = await sendAll(requests, pid);
    const { profile } = await inspector.call("Profiler.stop");
    return { ...sent, samples: samplesOf(profile) };
  } finally {
    inspector.close();
  }
}

function samplesOf({ nodes, startTime, samples, timeDeltas }) {
  const kinds = new Map(nodes.map(({ id, callFrame }) => [id, KINDS.get(callFrame.functionName) ?? "run"]));
  let time = startTime;
  return samples.map((id, n) => [(time += timeDeltas[n]), kinds.get(id)]).sort(([a], [b]) => a - b);
}

async function heapOf(inspector) {
  const { usedSize, backingStorageSize, embedderHeapUsedSize } = await inspector.call("Runtime.getHeapUsage");
  return { heap: usedSize + (embedderHeapUsedSize ?? 0), buffers: backingStorageSize ?? 0 };
}

async function memory({ inspector: base, worker }) {
  const inspector = await Inspector.open(base, worker);
  try {
    return await heapOf(inspector);
  } finally {
    inspector.close();
  }
}

/** Where each script of the Worker has this text. */
async function placesOf(inspector, text) {
  const scripts = [];
  inspector.listen("Debugger.scriptParsed", ({ scriptId, url }) => scripts.push({ scriptId, url }));
  await inspector.call("Debugger.enable");
  const places = [];
  for (const { scriptId } of scripts) {
    const { result } = await inspector.call("Debugger.searchInContent", { scriptId, query: text, caseSensitive: true });
    for (const { lineNumber, lineContent } of result) {
      for (let at = lineContent.indexOf(text); at >= 0; at = lineContent.indexOf(text, at + 1)) places.push({ scriptId, lineNumber, columnNumber: at });
    }
  }
  return places;
}

/** Requests whose memory is looked at each time the Worker comes to `text`, where it is held for a moment. */
async function peak({ inspector: base, worker, text, requests }) {
  const inspector = await Inspector.open(base, worker);
  try {
    let most = await heapOf(inspector);
    let pauses = 0;
    let failed;
    inspector.listen("Debugger.paused", async () => {
      try {
        const now = await heapOf(inspector);
        pauses += 1;
        if (now.heap + now.buffers > most.heap + most.buffers) most = now;
        await inspector.call("Debugger.resume");
      } catch (error) {
        failed = error;
      }
    });
    for (const location of await placesOf(inspector, text)) await inspector.call("Debugger.setBreakpoint", { location });
    await sendAll(requests, 0);
    if (failed) throw failed;
    return { ...most, pauses };
  } finally {
    inspector.close();
  }
}

const OPERATIONS = { burst, memory, peak };

for await (const line of readline.createInterface({ input: process.stdin })) {
  let answer;
  try {
    const call = JSON.parse(line);
    if (!Object.hasOwn(OPERATIONS, call.op)) throw new Error(`unknown operation ${call.op}`);
    answer = await OPERATIONS[call.op](call);
  } catch (error) {
    answer = { error: error.cause ? `${error.message}: ${error.cause.message}` : error.message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
