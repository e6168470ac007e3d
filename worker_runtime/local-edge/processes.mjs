// workerd processes by recorded pid, so that none outlives its edge, however that ended.
// miniflare starts workerd through a small shell script, which writes the pid and the process's start time
// before it becomes workerd (exec keeps both), and asks Linux to kill it when Node dies, where `setpriv` exists.

import fs from "node:fs";
import path from "node:path";
import { execFileSync } from "node:child_process";

/** A token that tells two processes of the same pid apart; "" when the process is not there. */
export function startedAt(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  } catch {
    if (fs.existsSync("/proc/self/stat")) return "";
  }
  try {
    return execFileSync("ps", ["-o", "lstart=", "-p", String(pid)], { encoding: "utf8" }).trim();
  } catch {
    return "";
  }
}

const WRAPPER = `#!/bin/sh
# Written by edgespec's local edge: records this process, then becomes workerd.
if [ -r "/proc/$$/stat" ]; then started=$(sed 's/^.*) //' "/proc/$$/stat" | cut -d' ' -f20); else started=$(ps -o lstart= -p $$); fi
printf '%s' "$started" > "$EDGESPEC_WORKERD_PIDS/$$"
if command -v setpriv >/dev/null 2>&1 && setpriv --pdeathsig KILL true 2>/dev/null; then
  exec setpriv --pdeathsig KILL "$EDGESPEC_WORKERD" "$@"
fi
exec "$EDGESPEC_WORKERD" "$@"
`;

/**
 * Ends what an edge that was killed left behind, and makes miniflare start workerd through the wrapper.
 * @param {string} dir the state folder
 * @param {string} workerd path of the real binary
 * @returns {number} how many processes were ended
 */
export function adoptWorkerd(dir, workerd) {
  const pids = path.join(dir, "run", "workerd");
  fs.mkdirSync(pids, { recursive: true, mode: 0o700 });
  const ended = reap(pids);
  if (process.platform !== "win32") {
    const wrapper = path.join(dir, "run", "workerd.sh");
    fs.writeFileSync(wrapper, WRAPPER, { mode: 0o700 });
    fs.chmodSync(wrapper, 0o700);
    process.env.MINIFLARE_WORKERD_PATH = wrapper;
    process.env.EDGESPEC_WORKERD = workerd;
    process.env.EDGESPEC_WORKERD_PIDS = pids;
  }
  return ended;
}

/** Forgets processes that have ended. */
export function forgetEnded(pids) {
  for (const name of fs.readdirSync(pids)) {
    const file = path.join(pids, name);
    if (startedAt(Number(name)) !== fs.readFileSync(file, "utf8").trim()) fs.rmSync(file, { force: true });
  }
}

/** Kills every recorded process that is still the one that was recorded, and forgets all records. */
export function reap(pids) {
  let ended = 0;
  for (const name of fs.readdirSync(pids)) {
    const file = path.join(pids, name);
    const recorded = fs.readFileSync(file, "utf8").trim();
    if (recorded && startedAt(Number(name)) === recorded) {
      try {
        process.kill(Number(name), "SIGKILL");
        ended += 1;
      } catch {
        // It ended between the check and the signal.
      }
    }
    fs.rmSync(file, { force: true });
  }
  return ended;
}
