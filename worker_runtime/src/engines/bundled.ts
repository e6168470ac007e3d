/** What the whole bundle has. The edge engine's own bundle takes `bundled-edge.ts` in its place (build.mjs). */

import { edge } from "./edge";
import type { Engine } from "./engine";
import { onnxruntime } from "./onnxruntime";

export const ENGINES: readonly Engine[] = [edge, onnxruntime];
