/** A module around the Worker that counts what it reads and can make a tier fail. */

import type { MiniflareOptions } from "miniflare";
import { type Edge, type EdgeOptions, makeConfig, modules } from "./edge.ts";

const SOURCE = `
import worker from "./worker.js";
const counts = { r2: 0, kv: 0, put: 0, open: 0, widest: 0 };
let broken = {};
const counted = async (name, work) => {
  counts[name] += 1;
  counts.open += 1;
  counts.widest = Math.max(counts.widest, counts.open);
  try {
    if (broken[name]) throw new Error(name + " is broken");
    return await work();
  } finally {
    counts.open -= 1;
  }
};
export default {
  async fetch(request, env, context) {
    const url = new URL(request.url);
    if (url.pathname === "/counts") return Response.json(counts);
    if (url.pathname === "/break") return Response.json((broken = Object.fromEntries(url.searchParams)));
    const bucket = { get: (key) => counted("r2", () => env.WEIGHTS_WORLD.get(key)) };
    const kv = env.WEIGHTS_KV && {
      get: (key, options) => counted("kv", () => env.WEIGHTS_KV.get(key, options)),
      put: (key, value, options) => counted("put", () => env.WEIGHTS_KV.put(key, value, options)),
    };
    return worker.fetch(request, { ...env, WEIGHTS_WORLD: bucket, ...(kv && { WEIGHTS_KV: kv }) }, context);
  },
};
`;

export interface Counts {
  readonly r2: number;
  readonly kv: number;
  readonly put: number;
  /** The most reads and writes that were waiting at the same time. */
  readonly widest: number;
}

/** Options for `start` that put the counting module before the Worker, for a single shard `world`. */
export function counting(options: EdgeOptions): EdgeOptions {
  const main = { type: "ESModule" as const, path: "counting.js", contents: SOURCE };
  const miniflare = { ...options.miniflare, modules: [main, ...modules(makeConfig(options))] } as Partial<MiniflareOptions>;
  return { ...options, miniflare };
}

export const countsOf = async (edge: Edge): Promise<Counts> => (await (await edge.fetch("/counts")).json()) as Counts;

/** Make R2 reads (`r2`), KV reads (`kv`) or KV writes (`put`) raise from now on; none with no names. */
export const breakTiers = (edge: Edge, ...names: readonly ("r2" | "kv" | "put")[]) =>
  edge.fetch(`/break?${names.map((name) => `${name}=1`).join("&")}`);
