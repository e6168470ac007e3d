/** The engines that this bundle has, by the name that an artifact's manifest gives. */

import { ENGINES } from "./bundled";
import type { Engine } from "./engine";

/** Raises when the artifact was built for an engine that this bundle lacks. */
export function findEngine(name: string): Engine {
  const engine = ENGINES.find((candidate) => candidate.name === name);
  if (engine === undefined) throw new Error(`engine ${name} is not in this bundle: ${ENGINES.map((e) => e.name).join(", ")}`);
  return engine;
}

/** Wasm memory of all engines, in bytes. */
export const engineMemory = (): number => ENGINES.reduce((sum, engine) => sum + engine.memory(), 0);
