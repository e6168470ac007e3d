"""Models of a hub, at a revision that does not move: `hf:ORG/NAME@REVISION` (Hugging Face), `ms:ORG/NAME@REVISION`
(ModelScope).

    hubs/<hub>/<org>/<name>/<revision>/            the files that a build reads, and no others
    hubs/<hub>/<org>/<name>/<revision>/.origin     which commit that was, and each file's SHA-256

A commit is 40 hex digits. A tag is asked for once: what it meant is kept in `.origin`, and the digest of the files is
in the plan and in state, so a tag that somebody moves shows as a change of the model. Every file is verified against
the digest that the hub states, is written beside its place, and the folder is renamed when all are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from edgespec.build.cache import Cache, flush_folder, touch
from edgespec.build.events import BuildEvent, Progress
from edgespec.build.problems import fail
from edgespec.spec.units import format_size
from edgespec.values import canonical_json, digest

if TYPE_CHECKING:
    from edgespec.build.hub_api import Listing

_HUB: Final = re.compile(r"(hf|ms):([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([A-Za-z0-9][\w./+-]*))?")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_WEIGHTS: Final = re.compile(r"[\w-][\w.-]*\.safetensors")
_TEXTS: Final = ("config.json", "tokenizer.json", "tokenizer_config.json", "modules.json", "1_Pooling/config.json")
_NAMES: Final = {"hf": "Hugging Face", "ms": "ModelScope"}
_COMMANDS: Final = {
    "hf": "hf download {repo} --revision {revision} --include '*.json' '*.safetensors' --local-dir models/{name}",
    "ms": "modelscope download --model {repo} --revision {revision} --local_dir models/{name}",
}


class HubName(Struct, frozen=True):
    hub: str
    """`hf` or `ms`."""
    repo: str
    """`ORG/NAME`."""
    revision: str

    @property
    def is_commit(self) -> bool:
        return _COMMIT.fullmatch(self.revision) is not None

    @property
    def by_hand(self) -> str:
        """How to supply the files where the hub cannot be asked."""
        name = self.repo.rpartition("/")[2]
        command = _COMMANDS[self.hub].format(repo=self.repo, revision=self.revision, name=name)
        return (
            f"On a machine that reaches {_NAMES[self.hub]} run `{command}`, bring the folder into this project and "
            f"write `source: ./models/{name}`."
        )

    def __str__(self) -> str:
        return f"{self.hub}:{self.repo}@{self.revision}"


def parse_hub(source: str) -> HubName | None:
    """None for what is no hub's. Raises EdgespecError (ES501) for a hub's model without a pinned revision."""
    if not source.startswith(("hf:", "ms:")):
        return None
    found = _HUB.fullmatch(source)
    if found is None or ".." in source:
        raise fail(
            "ES501", f"`source: {source}`: write `{source[:3]}ORG/NAME@REVISION`; a revision is a commit or a tag."
        )
    if found[3] is None:
        raise fail(
            "ES501",
            f"`source: {source}` names no revision, and what a hub serves without one changes from day to day. "
            f"Write `{source}@` and the commit (40 hex digits, on the model's page under Files, History) or a tag.",
        )
    return HubName(found[1], found[2], found[3])


def place_of(name: HubName, cache: Cache) -> Path:
    return cache.root / "hubs" / name.hub / name.repo / quote(name.revision, safe="")


def find_hub(name: HubName, cache: Cache, environ: Mapping[str, str]) -> Path | None:
    """The folder of its files: in the build cache, or where Hugging Face's own tools keep what they downloaded."""
    place = place_of(name, cache)
    if place.is_dir():
        touch(place)
        return place
    return _in_hugging_face_cache(name, environ) if name.hub == "hf" else None


def _in_hugging_face_cache(name: HubName, environ: Mapping[str, str]) -> Path | None:
    base = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    home = environ.get("HF_HOME") or str(Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    repo = (Path(base) if base else Path(home) / "hub").expanduser() / f"models--{name.repo.replace('/', '--')}"
    commit = name.revision
    if not name.is_commit:
        try:
            commit = (repo / "refs" / name.revision).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
    folder = repo / "snapshots" / commit
    return folder if _COMMIT.fullmatch(commit) and _is_complete(folder) else None


def _is_complete(folder: Path) -> bool:
    """Whether a snapshot, which may have been downloaded in part, has all that a build reads."""
    if not ((folder / "config.json").is_file() and (folder / "tokenizer.json").is_file()):
        return False
    if (folder / "model.safetensors").is_file():
        return True
    try:
        shards = json.loads((folder / "model.safetensors.index.json").read_bytes())["weight_map"].values()
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False
    return all((folder / str(shard)).is_file() for shard in shards)


def download(name: HubName, cache: Cache, progress: Progress, environ: Mapping[str, str]) -> Path:
    """The folder of its files in the cache, fetched when they are not there. Raises EdgespecError (ES502, ES504,
    ES505) and leaves nothing."""

    def waiting(who: str) -> None:
        progress(BuildEvent("fetch", f"waiting for {who}, which downloads {name}"))

    with cache.claim("fetch", digest(str(name)), str(name), waiting):
        return find_hub(name, cache, environ) or _download(name, cache, progress, environ)


def _download(name: HubName, cache: Cache, progress: Progress, environ: Mapping[str, str]) -> Path:
    from edgespec.build.hub_api import HubError, fetch, open_hub

    if name.hub == "hf" and environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise fail("ES502", f"{name}: HF_HUB_OFFLINE is set, and the model is not on this machine. {name.by_hand}")
    place = place_of(name, cache)
    progress(BuildEvent("fetch", f"asking {_NAMES[name.hub]} for {name}"))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".fetching-", dir=place.parent))
    except OSError as why:
        raise fail("ES532", f"{place.parent}: {why.strerror}. Name another folder in EDGESPEC_CACHE_DIR.") from None
    try:
        with open_hub(name.hub, environ) as hub:
            listing = hub.listing(name.repo, name.revision)
            files = [f for f in listing.files if f.path in _needed(name, [f.path for f in listing.files])]
            total, done = sum(f.size for f in files), 0
            for file in files:

                def more(count: int, before: int = done, path: str = file.path) -> None:
                    text = f"{path}: {format_size(before + count)} of {format_size(total)}"
                    progress(BuildEvent("fetch", text, (before + count) / total if total else None))

                fetch(hub, file, temporary / file.path, more)
                done += file.size
        _note_origin(name, listing, [f.path for f in files], temporary)
        temporary.rename(place)
        flush_folder(place.parent)
    except HubError as why:
        raise fail("ES502", f"{name}: {why} {name.by_hand if why.unreachable else ''}".rstrip()) from None
    except OSError as why:
        raise fail(
            "ES532", f"{place}: {why.strerror or why}. Free some space there, or set EDGESPEC_CACHE_DIR."
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return place


def _note_origin(name: HubName, listing: Listing, paths: Sequence[str], folder: Path) -> None:
    sums = {}
    for path in sorted(paths):
        with (folder / path).open("rb") as f:
            sums[path] = hashlib.file_digest(f, "sha256").hexdigest()
            os.fsync(f.fileno())
    origin = {"source": str(name), "commit": listing.commit, "files": sums}
    (folder / ".origin").write_text(canonical_json(origin) + "\n", encoding="utf-8")


def _needed(name: HubName, paths: Sequence[str]) -> list[str]:
    """Of a repository's files those that a build reads."""
    weights = [p for p in paths if _WEIGHTS.fullmatch(p)]
    if "model.safetensors" in weights:
        weights = ["model.safetensors"]
    listed = ", ".join(sorted(paths)[:12]) + (" ..." if len(paths) > 12 else "")
    if "config.json" not in paths or not weights:
        old = (
            " Its pytorch_model.bin is a pickle, which edgespec does not run; look for a revision with safetensors."
            if "pytorch_model.bin" in paths
            else ""
        )
        raise fail("ES504", f"{name} holds no config.json with *.safetensors, but {listed}.{old}")
    if "tokenizer.json" not in paths:
        raise fail(
            "ES505",
            f"{name} holds no tokenizer.json, but {listed}. {name.by_hand} Before that, write the tokenizer with "
            "transformers: `AutoTokenizer.from_pretrained(DIR, use_fast=True).save_pretrained(DIR)`.",
        )
    return [*(t for t in _TEXTS if t in paths), *weights]
