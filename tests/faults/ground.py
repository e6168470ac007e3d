"""What the machine stands on: a project whose models are in the build cache, a Worker without an engine, waits that are
short, and the account's whole inventory."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

from edgespec import assets, operations
from edgespec.assets import Bundles, Module
from edgespec.providers.cloudflare import deployment, pace
from edgespec.providers.cloudflare.account import Account
from edgespec.providers.cloudflare.pace import Pace
from edgespec.session import current_state
from tests.e2e.conftest import TinyProject

# Healthy only when every chunk that its configuration names is in its bucket; it calls everything a refund.
WORKER: Final = """
import text from "./config.json";
const config = JSON.parse(text);
const json = (value, status = 200) => new Response(JSON.stringify(value), { status });
const label = (name) => ({ label: name, display: name, score: name === "refund" ? 1 : 0 });
export default {
  async fetch(request, env) {
    const path = new URL(request.url).pathname;
    for (const shard of Object.values(config.shards)) {
      for (const file of Object.values(config.artifacts[shard.artifact].files)) {
        for (const chunk of file.chunks) {
          if (!(await env[shard.bucket].head("artifacts/" + chunk.sha256))) return json({ missing: chunk.sha256 }, 503);
        }
      }
    }
    if (path.endsWith("/healthz")) return json({ status: "ok" });
    const { texts } = await request.json();
    const scores = ["refund", "delivery", "other"].map(label);
    return json({ results: texts.map(() => ({ ...label("refund"), scores })) });
  },
};
"""

EU: Final = {"jurisdiction": "eu", "match": {"continents": ["EU"]}}
REGIONS: Final[tuple[Mapping[str, Any] | None, ...]] = (
    None,
    {"shards": {"world": {"location": "wnam"}}},
    {"shards": {"world": {"location": "enam"}}},
    {"default": "world", "shards": {"world": {"location": "wnam"}, "eu": EU}},
)
CACHES: Final = (
    {"weights": {"tiers": ["memory"]}},
    {"weights": {"kv": {"pin": ["tokenizer"]}}},
    {"weights": {"kv": {"pin": ["model", "tokenizer"], "ttl": "2h"}}},
)
METHODS: Final = ("none", "int8")
QUALITIES: Final = (None, 0.1, 0.2)
NAMES: Final = ("alpha", "beta")
_numbers = itertools.count(1)

Wanted = tuple[int, int, int, int]
"""Indices into REGIONS, CACHES, METHODS and QUALITIES."""


class Ground:
    """One project on an edge; `wanted` is what its specs ask for, by name."""

    def __init__(self, folder: Path, cache: Path, edge: Path) -> None:
        self._cache, self._edge, self._folder = cache, edge, folder
        self.project = self._make()
        self.wanted: dict[str, Wanted] = {}

    def _make(self) -> TinyProject:
        number = next(_numbers)
        return TinyProject(self._folder / f"project{number}", self._cache, f"shop{number}x", self._edge)

    def write(self, wanted: Mapping[str, Wanted]) -> None:
        """A project has at least one spec: with none wanted it is there, and all that it asked for is destroyed."""
        write_specs(self.project, wanted or {NAMES[0]: (0, 0, 0, 0)})
        self.wanted = dict(wanted)

    def undisturbed(self, wanted: Wanted) -> dict[str, Any]:
        """What one apply of one spec into an account that has nothing of it leaves."""
        project = self._make()
        write_specs(project, {NAMES[0]: wanted})
        project.apply_well()
        found = inventory(project)
        project.apply_well(destroy=True, allow_destroy=True)
        return found


def write_specs(project: TinyProject, wanted: Mapping[str, Wanted]) -> None:
    for name in NAMES:
        if name not in wanted:
            (project.root / "specs" / f"{name}.yaml").unlink(missing_ok=True)
            continue
        region, cache, method, quality = wanted[name]
        fields: dict[str, Any] = {"cache": CACHES[cache], "quantization": {"method": METHODS[method]}}
        regions, least = REGIONS[region], QUALITIES[quality]
        if regions is not None:
            fields["regions"] = regions
        if least is not None:
            fields["quality"] = {"data": "data/test.jsonl", "metrics": {"accuracy": {"min": least}}}
        project.write_spec(name, **fields)


def inventory(project: TinyProject) -> dict[str, Any]:
    """Everything of this project that the account holds, under names that do not depend on the project."""
    with contextlib.closing(operations.connect(project.session())) as account:
        live = operations.Live(account)
        mine = f"{project.name}-local-"

        def of(names: Any) -> list[str]:
            return sorted(n.removeprefix(mine) for n in names if n.startswith(mine))

        buckets = [(j, b) for j in ("default", "eu") for b in of(live.buckets(j))]
        ids = {t.removeprefix(mine): i for i, t in live.namespaces().items() if t.startswith(mine)}
        scripts = of(live.scripts())
        return {
            "objects": {(j, b): frozenset(live.objects(mine + b, j) or ()) for j, b in buckets},
            "pinned": {t: live.pinned(i) for t, i in ids.items()},
            "served": {s: sorted((live.deployed(mine + s) or {}).values()) for s in scripts},
            "open": {s: live.workers_dev(mine + s) for s in scripts},
            "tags": {s: version_tags(account, mine + s) for s in scripts},
        }


def archived(project: TinyProject) -> dict[tuple[str, str], frozenset[str]]:
    """What each bucket holds only because it served once, by state: a matter of history, which no spec says."""
    state = current_state(project.session())
    named: dict[str, dict[tuple[str, str], set[str]]] = {"weights": {}, "archive": {}}
    for key, record in state.records.items() if state is not None else ():
        if key.address.type in named:
            inputs: Any = record.inputs
            place = (inputs["jurisdiction"], inputs["bucket"].removeprefix(f"{project.name}-local-"))
            named[key.address.type].setdefault(place, set()).update(b["sha256"] for b in inputs["blobs"])
    return {p: frozenset(found - named["weights"].get(p, set())) for p, found in named["archive"].items()}


def version_tags(account: Account, script: str) -> list[str]:
    items = account.get(f"/workers/scripts/{script}/versions", {"per_page": 100})["result"]["items"]
    return [str((v.get("annotations") or {}).get("workers/tag")) for v in items]


@contextlib.contextmanager
def quick(folder: Path) -> Iterator[None]:
    """The small Worker, and pauses of milliseconds."""
    path = folder / "worker.js"
    path.write_text(WORKER)
    sha256 = hashlib.sha256(WORKER.encode()).hexdigest()
    module = Module(path.name, "application/javascript+module", path, sha256, len(WORKER))
    bundles = Bundles({"edge": (module,), "onnxruntime": (module,)})
    with (
        mock.patch.object(assets, "bundles", lambda: bundles),
        mock.patch.object(deployment, "WAIT_S", 1.0),
        mock.patch.object(deployment, "_PAUSE_S", 0.02),
        mock.patch.object(Pace, "spread", lambda self, seconds: seconds / 500),
        mock.patch.object(pace, "PATIENCE_S", 0.2),
    ):
        yield
