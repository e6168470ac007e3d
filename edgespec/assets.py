"""What ships inside edgespec beside its Python code: the Worker's bundle, the JSON Schemas, the local edge's sources.

A wheel carries them in `edgespec/_assets`; a checkout has them where they are made.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from edgespec.diagnostics import EdgespecError, error
from edgespec.resources.facts import BundleFacts
from edgespec.values import digest, sha256_hex

_PACKAGE: Final = Path(__file__).parent
_CHECKOUT: Final = _PACKAGE.parent
COMPATIBILITY_DATE: Final = "2026-07-01"
"""The Workers runtime's behaviour that the bundle is tested with."""


def _folder(name: str, checkout: str) -> Path:
    packed = _PACKAGE / "_assets" / name
    return packed if packed.is_dir() else _CHECKOUT / checkout


def local_edge_sources() -> Path:
    return _folder("local-edge", "worker_runtime/local-edge")


class Module(Struct, frozen=True):
    """One module of the Worker as it is uploaded."""

    name: str
    content_type: str
    path: Path
    sha256: str
    size: int


class Bundles(Struct, frozen=True):
    """The Worker's modules for each engine, the main one first: an artifact is uploaded with its own engine's."""

    by_engine: Mapping[str, tuple[Module, ...]]

    @property
    def facts(self) -> BundleFacts:
        files = {e: [[m.name, m.content_type, m.sha256] for m in ms] for e, ms in self.by_engine.items()}
        sizes = {e: sum(m.size for m in ms) for e, ms in self.by_engine.items()}
        return BundleFacts(digest(files), sizes, COMPATIBILITY_DATE)


def bundles() -> Bundles:
    """The Worker's modules by engine; raises when they were not built."""
    folder = _folder("worker", "worker_runtime/dist")
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        detail = f"{folder} has no built Worker. In a checkout run scripts/setup; otherwise reinstall edgespec."
        raise EdgespecError(error("ES403", "The Worker's bundle is missing", detail)) from None
    modules = {
        f["name"]: Module(f["name"], f["type"], folder / f["name"], f["sha256"], f["size"]) for f in manifest["files"]
    }
    return Bundles({engine: tuple(modules[n] for n in names) for engine, names in manifest["bundles"].items()})


def module_bytes(module: Module) -> bytes:
    """A module's content, checked against the bundle's manifest."""
    data = module.path.read_bytes()
    if sha256_hex(data) != module.sha256:
        detail = f"{module.path} is not the file that the bundle's manifest names. Build it again or reinstall."
        raise EdgespecError(error("ES404", "The Worker's bundle is damaged", detail))
    return data


@functools.cache
def schema(name: str) -> dict[str, Any]:
    """A published JSON Schema, by its name in schemas/."""
    path = _folder("schemas", "schemas") / f"{name}.schema.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def schema_error(name: str, document: Any) -> str | None:
    """What is wrong with `document` by a published schema, with the place; None when nothing is."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    found = best_match(Draft202012Validator(schema(name)).iter_errors(document))
    return None if found is None else f"at {found.json_path}: {found.message[:300]}"
