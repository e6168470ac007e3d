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

/** `edge` must have been started with `inspectorPort: 0`. */
export async function heapUsage(edge: Edge): Promise<HeapUsage> {
  const base = await edge.miniflare.getInspectorURL();
  const targets = (await (await fetch(new URL("/json", base.href.replace("ws:", "http:")))).json()) as { id: string }[];
  const target = targets.find(({ id }) => id.startsWith("core:user:")) ?? targets[0];
  if (target === undefined) throw new Error("the inspector lists no Worker");
  const socket = new WebSocket(new URL(`/${target.id}`, base));
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve);
    socket.addEventListener("error", reject);
  });
  try {
    const reply = new Promise<Reply>((resolve) => {
      socket.addEventListener("message", (event) => {
        const message = JSON.parse(String(event.data)) as Reply;
        if (message.id === 1) resolve(message);
      });
    });
    socket.send(JSON.stringify({ id: 1, method: "Runtime.getHeapUsage" }));
    const { result } = await reply;
    return { usedSize: result?.["usedSize"] ?? 0, backingStorageSize: result?.["backingStorageSize"] ?? 0 };
  } finally {
    socket.close();
  }
}
