"""An account in memory behind the provider protocol, a build that makes no model, and a state kept as text.

It has the rules of the real one that matter to order and to crashes: a bucket is deleted only when it is empty, a
version needs what it binds, a deployment needs healthy weights, every name is taken once. After every single effect it
checks that each public Worker can still load its weights, and it can stop the run there: `Crash` is what a kill is.
Calls can fail in the ways in which a network and an API fail, and steps may run in threads.

    world = World()
    store = MemoryStore(world)
    apply(world, store, [spec("alpha")])
    assert plan(world, store, [spec("alpha")]).is_empty
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from edgespec.address import Address
from edgespec.apply.applier import THREAD
from edgespec.apply.applier import apply as run_steps
from edgespec.apply.refresh import refresh
from edgespec.artifact import Chunk, FileEntry, Manifest, ModelInfo
from edgespec.plan.archives import with_archives
from edgespec.plan.events import ApplyResult, Event
from edgespec.plan.model import Action, Contents, Plan, Request
from edgespec.plan.moves import renamed
from edgespec.plan.planner import make_plan
from edgespec.providers.base import AlreadyExistsError, Observed, Progress, Provider, ProviderError
from edgespec.providers.cloudflare.archive import kept
from edgespec.records import replace
from edgespec.resources import model as model_type
from edgespec.resources.compile import compile_specs
from edgespec.resources.facts import BuildFacts, BundleFacts, SpecFacts, StageFacts
from edgespec.spec.models import EdgeModel
from edgespec.state.codec import encode, parse
from edgespec.state.journal import Entry, Mutation, encode_entry, read_entries, replay
from edgespec.state.model import Key, ResourceRecord, State, Status
from edgespec.values import UNKNOWN, Inputs, Outputs, Unknown, digest, sha256_hex

PROJECT, ENVIRONMENT = "shop", "local"
BUNDLE = BundleFacts(sha256_hex(b"bundle"), {"edge": 1000, "onnxruntime": 1000}, "2026-07-01")


_LOCK = threading.RLock()
"""One for all worlds: a world is copied, and a lock cannot be."""


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


class Fault(StrEnum):
    """How a changing call fails. Real ones, on a real edge, are in tests/faults."""

    REFUSED = "refused"
    """Certainly not carried out: the connection refused, too many requests."""
    BROKEN = "broken"
    """Not carried out, which nobody can know: 500, 502."""
    LOST = "lost"
    """Carried out, and the answer never came, or not whole."""


@dataclass
class Script:
    versions: dict[str, Inputs] = field(default_factory=dict)
    live: str | None = None
    public: bool = False


@dataclass
class World:
    """`fail` names calls that are refused ("create deployment/alpha"); `sources` has each source's digest."""

    buckets: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """(jurisdiction, name) -> SHA-256 -> bytes."""
    namespaces: dict[str, str] = field(default_factory=dict)
    """id -> title."""
    pins: dict[str, set[str]] = field(default_factory=dict)
    """Namespace id -> SHA-256 of keys without expiry."""
    scripts: dict[str, Script] = field(default_factory=dict)
    cache: dict[str, Manifest] = field(default_factory=dict)
    """What this machine has built, by key."""
    sources: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    """Sources that are not on this machine until a build fetches them."""
    tools: str = "1.0"
    made: dict[str, Manifest] = field(default_factory=dict)
    """Every artifact that was ever built, by digest, in order: as if a release named each."""
    released: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Spec -> the artifact that is deployed as it is, and the number of its release."""
    keep: int = 2
    """Artifacts that stay after they served."""
    fail: set[str] = field(default_factory=set)
    effects: list[str] = field(default_factory=list)
    faults: dict[int, Fault] = field(default_factory=dict)
    """Changing call, counted from 0 -> how it fails."""
    calls: int = 0
    crash_at: int | None = None
    """The effect or state write, counted from 0, after which the run is killed."""
    ticks: int = 0
    killed: bool = False
    broken: set[str] = field(default_factory=set)
    """Workers that somebody else's doing has left without weights: no run is to blame."""
    ids: int = 0
    """How many objects the API has named."""

    def new_id(self) -> int:
        with _LOCK:
            self.ids += 1
            return self.ids

    def tick(self) -> None:
        with _LOCK:
            self.killed = self.crash_at is not None and self.ticks >= self.crash_at
            self.check_alive()
            self.ticks += 1

    def check_alive(self) -> None:
        """A kill in one thread has ended every other too."""
        if self.killed and self.crash_at is not None:
            raise Crash

    @contextlib.contextmanager
    def change(self, call: str, address: Address, *, first: bool = True) -> Iterator[None]:
        """A changing call, made by the block. `first` says that the step has changed nothing before it."""
        what = f"{call} {address}"
        with _LOCK:
            self.check_alive()
            fault = self.faults.get(self.calls)
            self.calls += 1
            if fault in (Fault.REFUSED, Fault.BROKEN):
                nothing_done = first and fault is Fault.REFUSED
                raise ProviderError(address, "Failed", f"{what}: {fault}.", nothing_done=nothing_done)
            yield
            self.effect(what)
            if fault is Fault.LOST:
                raise ProviderError(address, "Failed", f"{what}: {fault}.")

    def effect(self, what: str) -> None:
        """Something has just been changed."""
        self.effects.append(what)
        for name, script in self.scripts.items():
            if script.public and script.live is not None:
                lost = self.unhealthy(script.versions[script.live])
                assert not lost or name in self.broken, f"after {what}: {name} serves users and has lost {lost}"
                self.broken -= set() if lost else {name}
        self.tick()

    def disturb(self, number: int, recorded: State | None = None) -> None:
        """Somebody removes, renames or closes one of the things that exist. A namespace whose id never came to be
        `recorded` is not renamed: it has no other mark, so that nobody could find it again."""
        ids = self.namespaces if recorded is None else {r.outputs.get("id") for r in recorded.records.values()}
        doings: list[Callable[[], object]] = [
            *(partial(self.buckets.pop, key) for key in self.buckets),
            *(partial(objects.pop, sha) for objects in self.buckets.values() for sha in objects),
            *(partial(keys.discard, sha) for keys in self.pins.values() for sha in keys),
            *(partial(self.scripts.pop, name) for name in self.scripts),
            *(partial(self.namespaces.update, {id_: "by-hand"}) for id_ in self.namespaces if id_ in ids),
            *(partial(setattr, script, "public", False) for script in self.scripts.values()),
        ]
        if doings:
            doings[number % len(doings)]()
        for name, script in self.scripts.items():
            if script.live is not None and self.unhealthy(script.versions[script.live]):
                self.broken.add(name)

    def refuse(self, call: str, address: Address, *, nothing_done: bool = True) -> None:
        if f"{call} {address}" in self.fail:
            raise ProviderError(address, "Refused", "As the test wants it.", nothing_done=nothing_done)

    def unhealthy(self, inputs: Inputs) -> str:
        """What a version that was made of `inputs` lacks."""
        manifest: Any = inputs["manifest"]
        bindings: Any = inputs["bindings"]
        wanted = {b.sha256 for b in Manifest.from_json(manifest).chunks}
        for name, binding in bindings.items():
            if binding["type"] == "kv_namespace":
                if binding["namespace_id"] not in self.namespaces:
                    return str(name)
            elif not wanted <= self.buckets.get((binding["jurisdiction"], binding["bucket_name"]), {}).keys():
                return str(name)
        return ""

    def snapshot(self) -> dict[str, Any]:
        """All that exists, without what differs between two equal histories: ids and old versions."""
        live = {}
        for name, script in self.scripts.items():
            text = json.dumps(script.versions[script.live] if script.live else None, sort_keys=True)
            for id_, title in self.namespaces.items():
                text = text.replace(f'"{id_}"', f'"{title}"')
            live[name] = (text, script.public)
        return {
            "buckets": self.buckets,
            "namespaces": sorted(self.namespaces.values()),
            "pins": {self.namespaces[i]: keys for i, keys in self.pins.items() if keys},
            "scripts": live,
        }


# --- builds ----------------------------------------------------------------------------------------------------------


def build(world: World, inputs: Inputs) -> Manifest:
    """An artifact that depends on all inputs but the tools; the tokenizer only on the source."""
    shown = {k: v for k, v in inputs.items() if k != "tools"}
    source = str(inputs["source_digest"])
    files = {}
    for name, seed in (("model.onnx", digest(shown)), ("tokenizer.json", source), ("tokenizer_config.json", source)):
        chunks = tuple(Chunk(sha256_hex(f"{name}{seed}{i}".encode()), 10) for i in range(1 + (name == "model.onnx")))
        files[name] = FileEntry(sha256_hex(seed.encode()), 10 * len(chunks), chunks)
    task: Any = inputs["task"]
    info = ModelInfo(("input_ids", "attention_mask"), "embedding", 4, str(inputs["quantization"]))
    return Manifest("onnxruntime", task, info, files)


def build_inputs(world: World, spec: EdgeModel) -> dict[str, Any]:
    source = spec.model.source
    return {
        "source": source,
        "source_digest": UNKNOWN if source in world.absent else world.sources.get(source, sha256_hex(source.encode())),
        "pipeline": {},
        "task": spec.task.model_dump(mode="json"),
        "quantization": spec.quantization.method,
        "engine": UNKNOWN if source in world.absent else "onnxruntime",
        "chunk": spec.cache.weights.kv.chunk,
        "tools": {"onnx": world.tools},
    }


def facts(world: World, spec: EdgeModel) -> SpecFacts:
    if spec.name in world.released:
        artifact, number = world.released[spec.name]
        gate = sha256_hex(b"quality") if spec.quality else None
        return SpecFacts(model_type.pinned(world.made[artifact], number), gate)
    inputs = build_inputs(world, spec)
    known = not isinstance(inputs["source_digest"], Unknown)
    key = digest(inputs) if known else None
    manifest = world.cache.get(key) if key else None
    stages = tuple(StageFacts(n, key, cached=manifest is not None) for n in ("fetch", "export", "quantize", "pack"))
    quality = sha256_hex(b"quality") if spec.quality else None
    return SpecFacts(BuildFacts(inputs, key, stages, manifest), quality)


# --- providers -------------------------------------------------------------------------------------------------------


@dataclass
class Models:
    world: World

    def read(self, record: ResourceRecord) -> Observed | None:
        if record.status is Status.CREATING:
            return None
        return Observed(record.inputs, record.outputs, complete=record.status is Status.READY)

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        self.world.refuse("create", address)
        if model_type.is_pinned(inputs):
            return model_type.outputs(self.world.made[str(inputs["artifact"])])
        source = str(inputs["source"])
        self.world.absent.discard(source)
        digest_now = self.world.sources.get(source, sha256_hex(source.encode()))
        inputs = {**inputs, "source_digest": digest_now, "engine": "onnxruntime"}
        manifest = build(self.world, inputs)
        with self.world.change("build", address):
            self.world.cache[digest(dict(inputs))] = manifest
            self.world.made[manifest.digest] = manifest
        return {**model_type.outputs(manifest), "source_digest": inputs["source_digest"]}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return self.create(record.address, inputs, progress)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        pass


@dataclass
class Buckets:
    world: World

    def _key(self, inputs: Inputs) -> tuple[str, str]:
        return str(inputs["jurisdiction"]), str(inputs["name"])

    def _outputs(self, inputs: Inputs) -> Outputs:
        return {"name": inputs["name"], "jurisdiction": inputs["jurisdiction"]}

    def read(self, record: ResourceRecord) -> Observed | None:
        there = self._key(record.inputs) in self.world.buckets
        return Observed(record.inputs, self._outputs(record.inputs)) if there else None

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return Observed(inputs, self._outputs(inputs)) if self._key(inputs) in self.world.buckets else None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        self.world.refuse("create", address)
        if self._key(inputs) in self.world.buckets:
            raise AlreadyExistsError(address, "The bucket")
        with self.world.change("create", address):
            self.world.buckets[self._key(inputs)] = {}
        return self._outputs(inputs)

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        self.world.refuse("update", record.address)
        return self._outputs(inputs)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        self.world.refuse("delete", record.address)
        if self.world.buckets.get(self._key(record.inputs)):
            raise ProviderError(record.address, "The bucket is not empty", "It holds objects.", nothing_done=True)
        if self._key(record.inputs) in self.world.buckets:
            with self.world.change("delete", record.address):
                del self.world.buckets[self._key(record.inputs)]


@dataclass
class Weights:
    world: World

    def _bucket(self, inputs: Inputs) -> dict[str, int] | None:
        return self.world.buckets.get((str(inputs["jurisdiction"]), str(inputs["bucket"])))

    def _sizes(self, inputs: Inputs) -> dict[str, int]:
        blobs: Any = inputs["blobs"]
        return {b["sha256"]: b["size"] for b in blobs}

    def read(self, record: ResourceRecord) -> Observed | None:
        wanted = self._sizes(record.inputs)
        present = wanted.keys() & (self._bucket(record.inputs) or {}).keys()
        if not present:
            return None
        return Observed(record.inputs, {"artifact": record.inputs["artifact"]}, complete=present == wanted.keys())

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        self.world.refuse("create", address)
        bucket = self._bucket(inputs)
        if bucket is None:
            raise ProviderError(address, "Uploading weights failed", "There is no such bucket.", nothing_done=True)
        for sha, size in self._sizes(inputs).items():
            if sha not in bucket:
                with self.world.change("put", address, first=False):
                    bucket[sha] = size
        return {"artifact": inputs["artifact"]}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return self.create(record.address, inputs, progress)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        self.world.refuse("delete", record.address)
        doomed = set(self._sizes(record.inputs))
        for other in others:
            if all(other.inputs[k] == record.inputs[k] for k in ("bucket", "jurisdiction")):
                doomed -= set(self._sizes(other.inputs))
        bucket = self._bucket(record.inputs)
        for sha in sorted(doomed) if bucket is not None else ():
            if bucket is not None and sha in bucket:
                with self.world.change("remove", record.address, first=False):
                    del bucket[sha]


@dataclass
class Archives(Weights):
    """Nothing is made; what nobody names any more is removed as with weights."""

    def read(self, record: ResourceRecord) -> Observed | None:
        return kept(record.inputs, self._bucket(record.inputs) or {})

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        self.world.refuse("create", address)
        return {}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return {}


@dataclass
class Namespaces:
    world: World

    def read(self, record: ResourceRecord) -> Observed | None:
        id_ = record.outputs.get("id")
        if id_ is None:
            return self.find(record.address, record.inputs)
        title = self.world.namespaces.get(str(id_))
        return None if title is None else Observed({"title": title}, {"id": id_})

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        ids = [i for i, title in self.world.namespaces.items() if title == inputs["title"]]
        return Observed(inputs, {"id": ids[0]}) if ids else None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        self.world.refuse("create", address)
        if inputs["title"] in self.world.namespaces.values():
            raise AlreadyExistsError(address, "A KV namespace")
        id_ = f"namespace-{self.world.new_id()}"
        with self.world.change("create", address):
            self.world.namespaces[id_] = str(inputs["title"])
        return {"id": id_}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        self.world.refuse("update", record.address)
        with self.world.change("update", record.address):
            self.world.namespaces[str(record.outputs["id"])] = str(inputs["title"])
        return {"id": record.outputs["id"]}

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        self.world.refuse("delete", record.address)
        if str(record.outputs["id"]) in self.world.namespaces:
            with self.world.change("delete", record.address):
                del self.world.namespaces[str(record.outputs["id"])]
                self.world.pins.pop(str(record.outputs["id"]), None)


@dataclass
class Pins:
    world: World

    def _keys(self, inputs: Inputs) -> set[str]:
        raw: Any = inputs["manifest"]
        names: Any = inputs["files"]
        manifest = Manifest.from_json(raw)
        return {c.sha256 for n in names if n in manifest.files for c in manifest.files[n].chunks}

    def read(self, record: ResourceRecord) -> Observed | None:
        wanted = self._keys(record.inputs)
        there = self.world.pins.get(str(record.inputs["namespace_id"]), set())
        return Observed(record.inputs, {}, complete=wanted <= there) if wanted & there else None

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        self.world.refuse("create", address)
        namespace = str(inputs["namespace_id"])
        if namespace not in self.world.namespaces:
            raise ProviderError(address, "Pinning failed", "There is no such namespace.", nothing_done=True)
        for sha in sorted(self._keys(inputs)):  # written whether it is there or not, as KV's bulk call does
            with self.world.change("pin", address, first=False):
                self.world.pins.setdefault(namespace, set()).add(sha)
        return {}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return self.create(record.address, inputs, progress)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        self.world.refuse("delete", record.address)
        namespace = str(record.inputs["namespace_id"])
        doomed = self._keys(record.inputs)
        for other in others:
            if other.inputs["namespace_id"] == namespace:
                doomed -= self._keys(other.inputs)
        for sha in sorted(doomed & self.world.pins.get(namespace, set())):
            with self.world.change("unpin", record.address, first=False):
                self.world.pins[namespace].discard(sha)


@dataclass
class Workers:
    world: World

    def _by_content(self, script: str, inputs: Inputs) -> str | None:
        made = self.world.scripts[script].versions
        return next((v for v, i in made.items() if digest(dict(i)) == digest(dict(inputs))), None)

    def read(self, record: ResourceRecord) -> Observed | None:
        script = str(record.inputs["script"])
        if script not in self.world.scripts:
            return None
        ready = record.status is Status.READY
        version = record.outputs.get("version_id")
        if version in self.world.scripts[script].versions:
            return Observed(record.inputs, record.outputs, complete=ready)
        found = self._by_content(script, record.inputs)
        if found is None:
            return Observed(record.inputs, {"script": script}, complete=False)
        return Observed(record.inputs, {"script": script, "version_id": found}, complete=ready)

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        script = str(inputs["script"])
        return Observed({"script": script}, {"script": script}) if script in self.world.scripts else None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        self.world.refuse("create", address)
        script = str(inputs["script"])
        if script in self.world.scripts:
            raise AlreadyExistsError(address, "A Worker")
        return self._upload(address, inputs)

    def _upload(self, address: Address, inputs: Inputs) -> Outputs:
        script = str(inputs["script"])
        if (lost := self.world.unhealthy(inputs)) != "":
            raise ProviderError(address, "Uploading failed", f"{lost} is bound to nothing.", nothing_done=True)
        made = self.world.scripts.get(script, Script())
        version = self._by_content(script, inputs) if script in self.world.scripts else None
        if version is None:
            version = f"version-{self.world.new_id()}"
            with self.world.change("upload", address):
                made.versions[version] = inputs
                made.live = made.live or version
                self.world.scripts[script] = made
        return {"script": script, "version_id": version}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        self.world.refuse("update", record.address)
        return self._upload(record.address, inputs)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        self.world.refuse("delete", record.address)
        if str(record.inputs["script"]) in self.world.scripts:
            with self.world.change("delete", record.address):
                del self.world.scripts[str(record.inputs["script"])]


@dataclass
class Deployments:
    world: World

    def read(self, record: ResourceRecord) -> Observed | None:
        script = self.world.scripts.get(str(record.inputs["script"]))
        if script is None or (record.status is Status.CREATING and not script.public):
            return None
        inputs = {**record.inputs, "version": script.live, "workers_dev": script.public}
        return Observed(inputs, record.outputs, complete=record.status is Status.READY)

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        self.world.refuse("create", address)
        script, version = self.world.scripts[str(inputs["script"])], str(inputs["version"])
        if (lost := self.world.unhealthy(script.versions[version])) != "":
            raise ProviderError(address, "Not healthy", f"{lost} cannot be read.", nothing_done=True)
        if script.live != version:
            with self.world.change("deploy", address):
                script.live = version
        if not script.public:
            with self.world.change("open", address, first=False):
                script.public = True
        return {"url": f"http://127.0.0.1:8787/w/{inputs['script']}/", "metrics": {}}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        self.world.refuse("update", record.address)
        return self.create(record.address, inputs, progress)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        self.world.refuse("delete", record.address)
        script = self.world.scripts.get(str(record.inputs["script"]))
        if script is not None and script.public:
            with self.world.change("close", record.address):
                script.public = False


def providers(world: World) -> dict[str, Provider]:
    return {
        "model": Models(world),
        "r2_bucket": Buckets(world),
        "weights": Weights(world),
        "archive": Archives(world),
        "kv_namespace": Namespaces(world),
        "kv_pins": Pins(world),
        "worker": Workers(world),
        "deployment": Deployments(world),
    }


# --- state and commands ----------------------------------------------------------------------------------------------


@dataclass
class MemoryStore:
    """State as the text and the journal that files would hold; a run may be killed before, within and after each
    write."""

    world: World
    text: str = ""
    journal: bytes = b""
    serial: int = 0
    """Of what this process has read or written last."""

    def load(self) -> State:
        if not self.text:
            return State("lineage", PROJECT, ENVIRONMENT)
        entries, whole = read_entries(self.journal, "journal")
        self.journal = self.journal[:whole]
        state = replay(parse(self.text, "state"), entries)
        self.serial = state.serial
        return state

    def save(self, state: State) -> State:
        written = replace(state, serial=state.serial + 1)
        self._write(written)
        return written

    def fold(self) -> None:
        if self.journal:
            self._write(self.load())

    def _write(self, state: State) -> None:
        self.text, self.serial = encode(state), state.serial
        self.world.tick()
        self.journal = b""

    def record(self, *changes: Mutation) -> int:
        self.world.check_alive()
        line = encode_entry(Entry("lineage", self.serial + 1, changes))
        before = self.journal
        self.journal = before + line[: len(line) // 2]
        self.world.tick()
        self.journal = before + line
        self.serial += 1
        self.world.tick()
        return self.serial


def plan(
    world: World,
    store: MemoryStore,
    specs: Sequence[EdgeModel],
    *,
    only: Iterable[str] | None = None,
    destroy: bool = False,
    request: Request | None = None,
) -> Plan:
    """What `edgespec plan` makes of these specs."""
    asked = request or Request(tuple(only or ()), destroy)
    names = asked.names
    whole = asked.destroy and not names and not asked.targets
    kept = [] if whole or asked.refresh_only else [s for s in specs if not (asked.destroy and s.name in names)]
    known = {s.name: facts(world, s) for s in kept}
    desired = compile_specs(PROJECT, ENVIRONMENT, sorted(kept, key=lambda s: s.name), known, BUNDLE)
    moved = renamed(store.load(), specs, asked).unwrap()
    refreshed = refresh(moved.state, desired, providers(world))
    desired = with_archives(desired, refreshed.state, world.keep)
    made = make_plan(desired, moved.state, refreshed, spec_digest="0" * 64, request=asked, moved=moved.moves).unwrap()
    builds = {Address("model", n): f.build for n, f in known.items()}
    return replace(made, builds=builds, contents=contents(world, made))


def contents(world: World, made: Plan) -> dict[Key, Contents]:
    found: dict[Key, Contents] = {}
    for change in made.changes:
        if change.action in (Action.DELETE, Action.REPLACE):
            record = made.refreshed.records[change.key]
            if change.address.type == "r2_bucket":
                held = world.buckets.get((str(record.inputs["jurisdiction"]), str(record.inputs["name"])), {})
                found[change.key] = Contents(len(held), sum(held.values()))
            elif change.address.type == "kv_namespace":
                found[change.key] = Contents(len(world.pins.get(str(record.outputs["id"]), ())), None)
    return found


def apply(
    world: World,
    store: MemoryStore,
    specs: Sequence[EdgeModel],
    *,
    only: Iterable[str] | None = None,
    destroy: bool = False,
    request: Request | None = None,
    events: list[Event] | None = None,
    parallelism: int = 1,
) -> ApplyResult:
    """Plan and carry out, as `edgespec apply` does."""
    made = plan(world, store, specs, only=only, destroy=destroy, request=request)
    heard: list[Event] = [] if events is None else events
    try:
        result = run_steps(made, store.load(), providers(world), store, heard.append, parallelism=parallelism)
    except Crash:
        join_steps()
        raise
    store.fold()
    return result


def join_steps() -> None:
    """Wait for the threads of a run that was killed: dead, they do nothing more, but must not come to life again when
    the next one lives."""
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join()


def spec(name: str = "alpha", **fields: Any) -> EdgeModel:
    """An EdgeModel; fields replace whole sections."""
    document: Mapping[str, Any] = {
        "apiVersion": "edgespec/v1",
        "kind": "EdgeModel",
        "metadata": {"name": name},
        "model": {"source": "./models/one"},
        "task": {"type": "embedding"},
        **fields,
    }
    return EdgeModel.model_validate(document)
