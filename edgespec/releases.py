"""Where the bytes of an artifact come from that nobody builds here: what a release names is found by its digest.

In this order: this machine's cache, the cache that machines share, the environment's own buckets, the buckets of the
environment that it was promoted from. Whatever comes from elsewhere is verified, and kept in this machine's cache.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from edgespec.address import Address
from edgespec.artifact import KEY_PREFIX, Manifest
from edgespec.build.entries import Blob
from edgespec.diagnostics import EdgespecError, error
from edgespec.files import write_whole
from edgespec.providers.cloudflare.account import Account, api_errors
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.provenance import fetched
from edgespec.resources import model
from edgespec.session import Session
from edgespec.spec.releases import LoadedReleases, ModelReleases, edit_releases
from edgespec.state.model import State
from edgespec.target import account_of

_MANIFEST: Final = 16 * 2**20
"""Bytes that a manifest has at most."""
_PART: Final = 1 << 20


class Artifacts:
    """Artifacts by digest. Connects to an account when one has to be asked; safe for use by several threads."""

    def __init__(self, session: Session, state: State | None) -> None:
        """`state` is the environment's."""
        self._session = session
        self._known = _manifests(state)
        workspace = session.workspace
        origins = [r.origin.environment for r in workspace.pins.values() if r.origin is not None]
        names = dict.fromkeys((workspace.environment, workspace.target.promote_from, *origins))
        self._places = [_Buckets(session, n) for n in names if n is not None and n in workspace.project.environments]

    def manifest(self, artifact: str, name: str) -> Manifest:
        """Of the model `name`; raises EdgespecError (ES705) where it is nowhere."""
        known = self._known.get(artifact)
        if known is None:
            known = Manifest.decode(self.path(artifact, name, _MANIFEST).read_bytes())
            self._known[artifact] = known
        return known

    def path(self, sha256: str, name: str, size: int) -> Path:
        """A file with a blob's verified bytes, of at most `size`; raises EdgespecError (ES705) where they are
        nowhere."""
        cache, blob = self._session.cache, Blob(sha256, size)
        if (path := cache.path(sha256)) is not None:
            return path
        tried = [f"the cache {cache.root}"]
        if self._session.remote is not None:
            if self._session.remote.fetch(cache, blob) and (path := cache.path(sha256)) is not None:
                return path
            tried.append(self._session.remote.name)
        for place in self._places:
            why = place.receive(blob)
            if why is None and (path := cache.path(sha256)) is not None:
                return path
            tried.append(why or "the cache, which lost it at once")
        detail = (
            f"{sha256[:12]} of {name} is nowhere: {'; '.join(tried)}. Take one that is still "
            "stored, or apply the environment that it came from first."
        )
        raise EdgespecError(error("ES705", "An artifact is not to be had", detail, address=f"model/{name}"))

    def statement(self, artifact: str) -> bytes | None:
        """The envelope with an artifact's provenance, out of the first bucket that has one. Nothing of it is
        verified."""
        return next((raw for place in self._places if (raw := place.statement(artifact)) is not None), None)


def _manifests(state: State | None) -> dict[str, Manifest]:
    """Those that the environment's state holds."""
    found: dict[str, Manifest] = {}
    for key, record in state.records.items() if state is not None else ():
        raw = record.outputs.get("manifest") if key.address.type == model.TYPE.name else None
        if isinstance(raw, dict):
            manifest = Manifest.from_json(raw)
            found[manifest.digest] = manifest
    return found


class _Buckets:
    """The buckets of one environment, found by their names: its state need not be at hand."""

    def __init__(self, session: Session, environment: str) -> None:
        self._session = session
        self._environment = environment
        self._lock = threading.Lock()
        self._open: tuple[Account, Live] | None = None
        self._last: tuple[str, str] | None = None
        """Where something was found: the rest of an artifact is there too."""

    def receive(self, blob: Blob) -> str | None:
        """Why the blob did not come into the cache; None when it did."""
        where = f"the buckets of {self._environment}"
        address = Address("r2_bucket", f"{self._session.workspace.project.name}-{self._environment}")
        try:
            with self._lock:
                account, live = self._open or self._connect()
            with api_errors(address, f"Reading {where}"):
                for bucket, jurisdiction in self._candidates(live):
                    if self._download(account, bucket, jurisdiction, blob):
                        self._last = (bucket, jurisdiction)
                        return None
        except EdgespecError as e:
            return f"{where} ({'; '.join(d.detail or d.summary for d in e.diagnostics)})"
        return where

    def statement(self, artifact: str) -> bytes | None:
        """None also where the buckets cannot be asked: an artifact is found without it."""
        address = Address("r2_bucket", f"{self._session.workspace.project.name}-{self._environment}")
        with contextlib.suppress(EdgespecError):
            with self._lock:
                account, live = self._open or self._connect()
            with api_errors(address, "Reading provenance"):
                for bucket, jurisdiction in self._candidates(live):
                    if (raw := fetched(account, bucket, jurisdiction, artifact)) is not None:
                        return raw
        return None

    def _connect(self) -> tuple[Account, Live]:
        session = self._session
        account = account_of(session.workspace, self._environment, session.environ, session.say)
        weakref.finalize(self, account.close)
        self._open = (account, Live(account))
        return self._open

    def _candidates(self, live: Live) -> Iterator[tuple[str, str]]:
        """Buckets of the environment's name, the one of the last success first, other jurisdictions last."""
        last, prefix = self._last, f"{self._session.workspace.project.name}-{self._environment}-"
        if last is not None:
            yield last
        from edgespec.providers.cloudflare.discover import JURISDICTIONS

        for jurisdiction in JURISDICTIONS:
            for bucket in sorted(live.buckets(jurisdiction)):
                if bucket.startswith(prefix) and (bucket, jurisdiction) != last:
                    yield bucket, jurisdiction

    def _download(self, account: Account, bucket: str, jurisdiction: str, blob: Blob) -> bool:
        body = account.open_object(jurisdiction, bucket, KEY_PREFIX + blob.sha256)
        if body is None:
            return False
        with contextlib.closing(body):
            try:
                with self._session.cache.receive(blob) as out:
                    while data := body.read(_PART):
                        out.write(data)
            except ValueError:  # damaged there: another bucket may have it whole
                return False
        return True


def write_releases(root: Path, loaded: LoadedReleases, models: Mapping[str, ModelReleases | None]) -> None:
    """Whole or not at all."""
    path = root / loaded.source.path
    text = edit_releases(loaded, models)
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, text.encode())
    except OSError as e:
        raise EdgespecError(error("ES702", "The releases cannot be written", f"{path}: {e.strerror}.")) from e


def rounded(metrics: Any) -> dict[str, float]:
    """As people read them; comparisons are made to as many digits."""
    return {name: round(float(value), 6) for name, value in sorted((metrics or {}).items())}
