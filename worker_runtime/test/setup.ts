/** Before all tests: dist/ is what the sources make. */

import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";

const BUILD = join(import.meta.dirname, "..", "build.mjs");

export default function setup(): void {
  const fresh = spawnSync(process.execPath, [BUILD, "--check"]).status === 0;
  if (!fresh) execFileSync(process.execPath, [BUILD], { stdio: ["ignore", "ignore", "inherit"] });
}
