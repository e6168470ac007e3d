"""Rules across fields: what a schema cannot say. Each returns diagnostics at the value that breaks the rule."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from edgespec import limits
from edgespec.diagnostics import Diagnostic, error, warning
from edgespec.spec.check_pipeline import check_pipeline, check_quantization
from edgespec.spec.document import Node
from edgespec.spec.models import CloudflareTarget, EdgeModel, LocalTarget, Project, TextClassification, metrics_of
from edgespec.spec.tune import check_tune
from edgespec.spec.units import format_size
from edgespec.spec.validate import Path, key_place, locate, place, suggest

_HUB: Final = re.compile(r"(hf|ms):[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*@(?!.*\.\.)[A-Za-z0-9][\w./+-]*")
_PACKAGE: Final = re.compile(r"package:[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(==[A-Za-z0-9.+!_-]+)?")


_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def check_project(project: Project, node: Node) -> list[Diagnostic]:
    """Every broken rule of a project."""
    found = []
    shared = project.build.cache
    if shared is not None and shared.environment is not None and shared.environment not in project.environments:
        known = f"There are: {', '.join(sorted(project.environments))}."
        detail = f"{shared.environment!r} is no environment of this project. {known}"
        detail += suggest(shared.environment, project.environments)
        where = place(node, ("build", "cache", "environment"))
        found.append(error("ES133", "Unknown environment", detail, source=where))
    found += _promotions(project, node)
    for name, environment in project.environments.items():
        if not isinstance(environment.target, CloudflareTarget):
            continue
        for field in ("api_base_url", "s3_base_url"):
            url: str | None = getattr(environment.target, field)
            if url is not None and not _is_safe(url):
                detail = "Write an https address; plain http is for this machine alone, since credentials travel in it."
                where = place(node, ("environments", name, "target", field))
                found.append(error("ES140", "Unsafe address", detail, source=where))
    found += _ports(project, node)
    if project.policies:
        from edgespec.spec.check_policies import check_policies

        found += check_policies(project, node)
    return found


def _ports(project: Project, node: Node) -> Iterator[Diagnostic]:
    """A project has one local edge, whatever environments live on it; 0 is content with any port."""
    first: tuple[str, int] | None = None
    for name, environment in project.environments.items():
        if not isinstance(environment.target, LocalTarget) or not environment.target.port:
            continue
        port = environment.target.port
        if first is not None and port != first[1]:
            detail = (
                f"{name} and {first[0]} share the project's local edge: {first[1]} or {port}, it listens on one port."
            )
            yield error("ES184", "Two ports of one edge", detail, source=place(node, ("environments", name, "target")))
        first = first or (name, port)


def _promotions(project: Project, node: Node) -> Iterator[Diagnostic]:
    """Each environment is promoted to from another one, and none from itself, however indirectly."""
    for name, environment in project.environments.items():
        source, where = environment.promote_from, place(node, ("environments", name, "promote_from"))
        if source is None:
            continue
        if source not in project.environments:
            known = f"There are: {', '.join(sorted(project.environments))}."
            detail = f"{source!r} is no environment of this project. {known}{suggest(source, project.environments)}"
            yield error("ES133", "Unknown environment", detail, source=where)
            continue
        seen = [name]
        while source is not None and source in project.environments and source not in seen:
            seen.append(source)
            source = project.environments[source].promote_from
        if source == name:
            steps = ", ".join(f"{one} from {other}" for one, other in itertools.pairwise([*seen, name]))
            detail = f"Promoted are {steps}: one of them must build what it deploys."
            yield error("ES703", "Promotion in a circle", detail, source=where)


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK))


def check_spec(spec: EdgeModel, node: Node, project: Project) -> list[Diagnostic]:
    """Every broken rule of one spec."""
    rules = (_names, _source, _display, _regions, _cache, _quality, _plan)
    found = [d for rule in rules for d in rule(spec, node, project)]
    return [*found, *check_pipeline(spec, node), *check_quantization(spec, node), *check_tune(spec, node)]


def _names(spec: EdgeModel, node: Node, project: Project) -> Iterator[Diagnostic]:
    for environment in project.environments:
        script = f"{project.name}-{environment}-{spec.name}"
        if len(script) > limits.SCRIPT_NAME:
            detail = (
                f"The Worker {script} would have {len(script)} characters; Cloudflare takes {limits.SCRIPT_NAME}, "
                "so that a version's preview address fits. Shorten this name, the project's or the environment's."
            )
            yield error("ES141", "Name too long", detail, source=place(node, ("metadata", "name")))
            return


def _source(spec: EdgeModel, node: Node, project: Project) -> Iterator[Diagnostic]:
    source, where = spec.model.source, place(node, ("model", "source"))
    if source.startswith(("hf:", "ms:")):
        if not _HUB.fullmatch(source):
            yield error("ES142", "Not a model source", _hub_advice(source), source=where)
    elif source.startswith("package:"):
        if not _PACKAGE.fullmatch(source):
            detail = f"{source!r}: write package:NAME or package:NAME==VERSION."
            yield error("ES142", "Not a model source", detail, source=where)
    elif not source.startswith("./"):
        detail = (
            f"{source!r}: write package:NAME, hf:ORG/NAME@REVISION, ms:ORG/NAME@REVISION, ./directory or ./model.onnx "
            "(relative to edgespec.yaml)."
        )
        yield error("ES142", "Not a model source", detail, source=where)
    elif ".." in source.split("/"):
        yield error("ES142", "Not a model source", "The path must stay inside the project.", source=where)


def _hub_advice(source: str) -> str:
    hub = source.partition(":")[0]
    if _HUB.fullmatch(f"{source}@v1"):
        return (
            f"`{source}` names no revision, and what a hub serves without one changes from day to day. Write "
            f"`{source}@` and the commit (40 hexadecimal digits, in the model's history on the hub) or a tag."
        )
    return f"{source!r}: write {hub}:ORG/NAME@REVISION; a revision is a commit or a tag."


def _display(spec: EdgeModel, node: Node, project: Project) -> Iterator[Diagnostic]:
    task = spec.task
    if not isinstance(task, TextClassification):
        return
    for label in task.display:
        if label not in task.labels:
            detail = f"`{label}` is not among the task's labels.{suggest(label, task.labels)}"
            yield error("ES159", "Display text of no label", detail, source=key_place(node, ("task", "display", label)))


def _regions(spec: EdgeModel, node: Node, project: Project) -> Iterator[Diagnostic]:
    regions = spec.regions
    shards: Path = ("regions", "shards")
    if regions.default is not None and regions.default not in regions.shards:
        known = ", ".join(regions.shards)
        detail = f"`{regions.default}` is not a shard; there are {known}.{suggest(regions.default, regions.shards)}"
        yield error("ES145", "Unknown shard", detail, source=place(node, ("regions", "default")))
        return
    if regions.default is None and len(regions.shards) > 1:
        detail = f"Say who serves everyone whom no shard matches: `default: {next(iter(regions.shards))}`."
        yield error("ES146", "No default shard", detail, source=key_place(node, ("regions",)))
        return
    for name, shard in regions.shards.items():
        where = key_place(node, (*shards, name))
        if shard.location and shard.jurisdiction:
            detail = f"`{name}` names a location and a jurisdiction; a jurisdiction already says where. Keep one."
            yield error("ES147", "Location and jurisdiction", detail, source=place(node, (*shards, name, "location")))
        matched = shard.match is not None and bool(shard.match.continents or shard.match.countries)
        if name == regions.default_shard and matched:
            detail = f"`{name}` is the default: it serves all whom no other shard matches. Remove its `match`."
            yield error(
                "ES148", "The default shard cannot match", detail, source=key_place(node, (*shards, name, "match"))
            )
        elif name != regions.default_shard and not matched:
            detail = f"`{name}` would never be used: give it `match` with continents or countries, or remove it."
            yield error("ES149", "A shard that matches nobody", detail, source=where)
    yield from _overlaps(spec, node)


def _overlaps(spec: EdgeModel, node: Node) -> Iterator[Diagnostic]:
    """A code in two shards; a country and its continent may differ, since the country decides first."""
    for field in ("continents", "countries"):
        owner: dict[str, str] = {}
        for name, shard in spec.regions.shards.items():
            codes: tuple[str, ...] = getattr(shard.match, field) if shard.match else ()
            for i, code in enumerate(codes):
                if code in owner:
                    path: Path = ("regions", "shards", name, "match", field, i)
                    detail = f"{code} already belongs to the shard `{owner[code]}`; one request needs one shard."
                    yield error("ES150", "Shards overlap", detail, source=place(node, path))
                owner.setdefault(code, name)


_LIMITS_OF_TIERS: Final[tuple[tuple[str, Path], ...]] = (
    ("memory", ("cache", "weights", "memory")),
    ("kv", ("cache", "weights", "kv", "ttl")),
    ("kv", ("cache", "weights", "kv", "cache_ttl")),
)
"""`chunk` is not among them: weights are stored in chunks whether KV holds them or not."""


def _cache(spec: EdgeModel, node: Node, project: Project) -> Iterator[Diagnostic]:
    weights = spec.cache.weights
    if weights.kv.pin and "kv" not in weights.tiers:
        detail = "Pinned files live in Workers KV: add `kv` to `tiers` or remove `pin`."
        yield error(
            "ES151", "Pinned without the kv tier", detail, source=place(node, ("cache", "weights", "kv", "pin"))
        )
    for tier, path in _LIMITS_OF_TIERS:
        if tier not in weights.tiers and locate(node, path)[1] == path:
            detail = f"`{path[-1]}` has no effect without the `{tier}` tier: add it to `tiers` or remove the field."
            yield error("ES152", "A limit without its tier", detail, source=place(node, path))
    if weights.kv.cache_ttl > weights.kv.ttl:
        detail = (
            f"`cache_ttl` ({weights.kv.cache_ttl} s) is longer than `ttl` ({weights.kv.ttl} s): "
            "the copy would outlive the value."
        )
        kv: Path = ("cache", "weights", "kv")
        written, path = locate(node, (*kv, "cache_ttl"))
        where = written.where if path[-1] == "cache_ttl" else place(node, (*kv, "ttl"))
        yield error("ES153", "cache_ttl exceeds ttl", detail, source=where)


def _quality(spec: EdgeModel, node: Node, project: Project) -> Iterator[Diagnostic]:
    known = metrics_of(spec.task)
    for name in spec.quality.metrics if spec.quality else ():
        if name not in known:
            path: Path = ("quality", "metrics", name)
            detail = f"`{name}` is not measured for {spec.task.type}; use {', '.join(known)}.{suggest(name, known)}"
            yield error("ES154", "Unknown metric", detail, source=key_place(node, path))


def _plan(spec: EdgeModel, node: Node, project: Project) -> Iterator[Diagnostic]:
    if spec.worker.plan == "free":
        detail = (
            f"The free plan stops a request after {limits.FREE_CPU_MS} ms of CPU. Whether this model fits depends on "
            "its size and its texts: measure it with `edgespec bench`, or set `plan: paid`."
        )
        yield warning("ES155", "CPU may not fit the free plan", detail, source=place(node, ("worker", "plan")))
    if spec.cache.weights.memory > limits.ISOLATE_MEMORY // 2 + 3 * limits.MIB:
        detail = (
            f"{format_size(spec.cache.weights.memory)} of cached chunks beside the engine may pass the isolate's "
            f"{limits.ISOLATE_MEMORY // 10**6} MB; 64MiB or less is safe."
        )
        yield warning(
            "ES156", "Little memory left for the engine", detail, source=place(node, ("cache", "weights", "memory"))
        )
