/** Without onnxruntime: some 10 MB of wasm less to upload and to compile. */

import { edge } from "./edge";
import type { Engine } from "./engine";

export const ENGINES: readonly Engine[] = [edge];
