"""A project of any size whose state is applied, and its plan: the edgespec side of bench/plan.py.

    python bench/plan_project.py make FOLDER RESOURCES     writes specs, builds the model once, writes state and account
    python bench/plan_project.py plan FOLDER               `edgespec plan` there
    python bench/plan_project.py again FOLDER              several in one process, and what each took

An account with thousands of Workers cannot be had on one machine, so what the API's list calls answer is read from a
file. All else is what `edgespec plan` runs: specs from YAML files, the build cache, state from its file, the providers'
reads over those answers, the planner, the review, the text.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from edgespec.providers.cloudflare.live import Live
    from edgespec.session import Session
    from edgespec.state.model import Key, ResourceRecord

SPEC: Final = """\
apiVersion: edgespec/v1
kind: EdgeModel
metadata: {{name: model-{number}}}
model: {{source: ./models/tiny}}
task: {{type: embedding, max_tokens: 32}}
regions:
  default: us
  shards:
    eu: {{location: weur, match: {{continents: [EU]}}}}
    us: {{location: enam}}
cache:
  weights: {{tiers: [memory, kv], kv: {{pin: [tokenizer]}}}}
"""
PER_SPEC: Final = 6
"""A model, weights in two shards, pinned chunks, a Worker, a deployment."""
DEPLOYED: Final = "2026-11-30T20:00:00+00:00"
AGAIN: Final = 4
"""Plans of a process that makes several."""
SHARED: Final = 3
"""Two buckets and a namespace."""
PROJECT: Final = """\
apiVersion: edgespec/v1
kind: Project
name: speed
environments: {local: {target: {type: local, port: 0}}}
"""


def specs_of(resources: int) -> int:
    """How many specs have about so many resources."""
    return max(1, round((resources - SHARED) / PER_SPEC))


def make(folder: Path, resources: int) -> int:
    """Returns how many resources there are."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from edgespec.session import open_session
    from tests.tiny import write_tiny_bert

    (folder / "specs").mkdir(parents=True)
    (folder / "edgespec.yaml").write_text(PROJECT)
    for number in range(specs_of(resources)):
        (folder / "specs" / f"model-{number}.yaml").write_text(SPEC.format(number=number))
    write_tiny_bert(folder / "models" / "tiny")
    made = deployed(open_session(folder, None, os.environ, lambda _: None))
    (folder / "account.json").write_text(json.dumps(account(made)))
    return len(made)


def deployed(session: Session) -> dict[Key, ResourceRecord]:
    """Everything that the specs ask for as an apply would leave it, in the session's state; one model is built for all
    that are alike."""
    from edgespec import graph
    from edgespec.assets import bundles
    from edgespec.build.pipeline import Pipeline
    from edgespec.facts import facts_of
    from edgespec.resources.base import Ref
    from edgespec.resources.compile import compile_specs
    from edgespec.state.codec import encode
    from edgespec.state.model import Key, ResourceRecord, State
    from edgespec.values import Value

    workspace = session.workspace
    Pipeline(workspace.root, session.cache, lambda _: None).build(workspace.specs[0])
    facts, _ = facts_of(session, None)
    project, environment = workspace.project.name, workspace.environment
    desired = compile_specs(project, environment, workspace.specs, facts, bundles().facts)
    made: dict[Key, ResourceRecord] = {}

    def output(ref: Ref) -> Value:
        return made[Key(ref.address)].outputs[ref.output]

    for address in graph.order({a: r.needs for a, r in desired.resources.items()}).unwrap():
        resource = desired.resources[address]
        inputs = resource.resolve(output)
        known = {**_outputs(address.type, address.name, environment), **resource.type.known_outputs(inputs)}
        record = ResourceRecord(address, inputs, {**known, **resource.outputs}, resource.needs, resource.owners)
        made[Key(address)] = record
    path = workspace.state_path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(encode(State("lineage", project, environment, 1, made)))
    return made


def _outputs(type_: str, name: str, environment: str) -> dict[str, Any]:
    """What only a call can tell."""
    made: dict[str, dict[str, Any]] = {
        "kv_namespace": {"id": hashlib.md5(environment.encode(), usedforsecurity=False).hexdigest()},
        "worker": {"version_id": f"version-of-{name}"},
        "deployment": {"url": f"http://127.0.0.1/w/{name}/", "metrics": {}, "deployed_on": DEPLOYED},
    }
    return made.get(type_, {})


def account(made: Mapping[Any, Any]) -> dict[str, Any]:
    """What list calls answer once all of it is deployed."""
    from edgespec.artifact import Manifest

    found: dict[str, Any] = {"buckets": [], "objects": {}, "namespaces": {}, "pinned": [], "versions": {}}
    for record in made.values():
        inputs, type_ = record.inputs, record.address.type
        if type_ == "r2_bucket":
            found["buckets"].append(inputs["name"])
        elif type_ == "weights":
            sizes = {b["sha256"]: b["size"] for b in inputs["blobs"]}
            found["objects"].setdefault(inputs["bucket"], {}).update(sizes)
        elif type_ == "kv_namespace":
            found["namespaces"][record.outputs["id"]] = inputs["title"]
        elif type_ == "kv_pins":
            found["pinned"] += [c.sha256 for c in Manifest.from_json(inputs["manifest"]).chunks]
        elif type_ == "worker":
            found["versions"][inputs["script"]] = record.outputs["version_id"]
    found["pinned"] = sorted(set(found["pinned"]))
    return found


def plan(folder: Path, *options: str, latency: float = 0.0) -> None:
    """`edgespec plan`, with what calls answer read from memory, each after `latency` seconds."""
    answers: dict[str, Any] = json.loads((folder / "account.json").read_text())
    from edgespec import operations
    from edgespec.cli.main import main
    from edgespec.providers.cloudflare.account import Account, Endpoints
    from edgespec.secret import Secret

    def connect(_: operations.Session) -> Account:
        return Account(Endpoints("0" * 32, "http://127.0.0.1:9/client/v4", Secret("TOKEN", "none")))

    for name, instead in (("Live", _answering(answers, latency)), ("connect", connect)):
        setattr(operations, name, instead)
    sys.argv = ["edgespec", "-C", str(folder), "plan", *options]
    main()


def plan_again(folder: Path) -> None:
    for _ in range(AGAIN):
        start, begun = time.process_time(), time.perf_counter()
        try:
            plan(folder)
        except SystemExit as e:
            if e.code:
                raise
        print("took", time.process_time() - start, time.perf_counter() - begun, flush=True)


def _answering(answers: dict[str, Any], latency: float) -> type[Live]:
    from edgespec.providers.cloudflare.live import Live
    from edgespec.providers.cloudflare.workers_list import Listed

    def after(found: Any) -> Any:
        if latency:
            time.sleep(latency)
        return found

    class Answers(Live):
        def _list_buckets(self, jurisdiction: str) -> frozenset[str]:
            return frozenset(after(answers["buckets"]))

        def _list_objects(self, bucket: str, jurisdiction: str) -> dict[str, int] | None:
            found: dict[str, int] | None = after(answers["objects"].get(bucket))
            return found

        def _list_namespaces(self) -> dict[str, str]:
            return dict(after(answers["namespaces"]))

        def _list_pinned(self, namespace: str) -> frozenset[str] | None:
            return frozenset(after(answers["pinned"]))

        def _list_scripts(self) -> dict[str, frozenset[str]]:
            return {script: frozenset({"edgespec"}) for script in after(answers["versions"])}

        def _list_workers(self) -> dict[str, Listed]:
            return {script: Listed(DEPLOYED, True) for script in after(answers["versions"])}

    return Answers


if __name__ == "__main__":
    command, where, *rest = sys.argv[1:]
    if command == "make":
        print(make(Path(where), int(rest[0])))
    elif command == "again":
        plan_again(Path(where))
    else:
        plan(Path(where), *rest)
