/** The JavaScript heap of a Worker's isolate, asked through workerd's inspector. */

import type { Edge } from "./edge.ts";

export interface HeapUsage {
  /** Live objects on V8's heap. */
  readonly usedSize: number;
  /** ArrayBuffers and strings outside it; wasm memory is not in here. */
  readonly backingStorageSize: number;
}

interface Reply {
  readonly id?: number;
  readonly result?: Record<string, number>;
}

/** `edge` must have been started with `inspectorPort: 0`. Collects garbage first when `collect` is set. */
export async function heapUsage(edge: Edge, { collect }: { readonly collect: boolean }): Promise<HeapUsage> {
  const base = await edge.miniflare.getInspectorURL();
  const targets = (await (await fetch(new URL("/json", base.href.replace("ws:", "http:")))).json()) as { id: string }[];
  const target = targets.find(({ id }) => id.startsWith("core:user:")) ?? targets[0];
  if (target === undefined) throw new Error("the inspector lists no Worker");
  const socket = new WebSocket(new URL(`/${target.id}`, base));
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve);
    socket.addEventListener("error", reject);
  });
  let last = 0;
  const call = (method: string) =>
    new Promise<Record<string, number>>((resolve) => {
      const id = ++last;
      const listen = (event: MessageEvent) => {
        const reply = JSON.parse(String(event.data)) as Reply;
        if (reply.id !== id) return;
        socket.removeEventListener("message", listen);
        resolve(reply.result ?? {});
      };
      socket.addEventListener("message", listen);
      socket.send(JSON.stringify({ id, method }));
    });
  try {
    if (collect) await call("HeapProfiler.collectGarbage");
    const usage = await call("Runtime.getHeapUsage");
    return { usedSize: usage["usedSize"] ?? 0, backingStorageSize: usage["backingStorageSize"] ?? 0 };
  } finally {
    socket.close();
  }
}
