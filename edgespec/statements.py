"""An artifact's provenance statement: from the caches, out of a bucket, or made of the build that is in the cache."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from edgespec.attestation import about
from edgespec.build import attest
from edgespec.build.attest import Revision
from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import Diagnostics, EdgespecError, warning
from edgespec.plan.policy import Provenance
from edgespec.revisions import Repository
from edgespec.session import Session
from edgespec.signing import PublicKey, Signer, public_key, signer_of, vouching
from edgespec.spec.releases import FOLDER
from edgespec.spec.validate import place
from edgespec.values import sha256_hex

_SCP: Final = re.compile(r"(?:[^@/]+@)?([^:/]+):(?!/)(.+)")


class Statements:
    """Statements of a session's artifacts. Safe for use by several threads."""

    def __init__(self, session: Session, elsewhere: Callable[[str], bytes | None] = lambda _: None) -> None:
        """`elsewhere` looks where an artifact that is not built here comes from."""
        self._session = session
        self._elsewhere = elsewhere
        self._lock = threading.Lock()
        self._trusted: tuple[PublicKey, ...] | None = None
        self._signer: tuple[Signer | None] | None = None
        self._revision: Revision | None = None

    @property
    def trusted(self) -> tuple[PublicKey, ...]:
        """The keys of `project.provenance.keys`; raises ES731."""
        if self._trusted is None:
            workspace = self._session.workspace
            names = workspace.project.provenance.keys
            self._trusted = tuple(
                public_key(workspace.root / n, n, place(workspace.project_node, ("provenance", "keys", i)))
                for i, n in enumerate(names)
            )
        return self._trusted

    @property
    def key_problems(self) -> Diagnostics:
        """Of the trusted keys: those that are none."""
        try:
            found = self.trusted
        except EdgespecError as e:
            return e.diagnostics
        twice = {k.keyid for k in found if [o.keyid for o in found].count(k.keyid) > 1}
        names = ", ".join(k.name for k in found if k.keyid in twice)
        return (
            Diagnostics.of(warning("ES733", "One key twice", f"{names} hold the same key.")) if twice else Diagnostics()
        )

    @property
    def signer(self) -> Signer | None:
        """Raises ES730 for a key that is set and cannot be used."""
        if self._signer is None:
            self._signer = (signer_of(self._session.environ),)
        return self._signer[0]

    @property
    def revision(self) -> Revision:
        if self._revision is None:
            self._revision = revision_of(self._session.workspace.root)
        return self._revision

    def of(self, name: str, artifact: str, *, store: bool = True) -> bytes | None:
        """The envelope that belongs beside what is deployed as `name`: one by the key at hand, else by a trusted key,
        else an unsigned one; made of the build in the cache where there is none yet, and kept where `store` is. None
        where nobody knows how the artifact was built."""
        with self._lock:
            release = self._session.workspace.pins.get(name)
            if release is not None:
                found = self._kept(artifact, (*self.trusted, None)) or self._elsewhere(artifact)
                same = release.provenance in (None, sha256_hex(found) if found is not None else None)
                return found if same else None
            signer = self.signer
            if signer is not None:
                own = self._kept(artifact, (signer.public,)) or self._made(name, artifact, signer, store=store)
                if own is not None:
                    return own
            return self._kept(artifact, (*self.trusted, None)) or self._made(name, artifact, None, store=store)

    def _kept(self, artifact: str, keys: Sequence[PublicKey | None]) -> bytes | None:
        """From the caches, and really by that key: a cache is no authority."""
        session = self._session
        for key in keys:
            raw = attest.kept(session.cache, session.remote, artifact, key.keyid if key is not None else "")
            envelope = about(raw, artifact)
            if envelope is not None and (key is None or key.vouches(envelope)):
                return raw
        return None

    def _made(self, name: str, artifact: str, signer: Signer | None, *, store: bool) -> bytes | None:
        session, spec = self._session, self._session.specs.get(name)
        if spec is None:
            return None
        with contextlib.suppress(EdgespecError):  # files that are gone: nobody can say any more what they were
            found = Pipeline(session.workspace.root, session.cache, lambda _: None, session.remote).built(spec)
            if found is None or found[1].digest != artifact:
                return None
            raw = attest.made(*found, self.revision, session.environ, signer).encode()
            if store:
                attest.keep(session.cache, session.remote, artifact, signer.keyid if signer else "", raw)
            return raw
        return None

    # --- what policies ask

    def standing(self, artifact: str, raw: bytes | None) -> Provenance:
        """What an envelope says of the artifact, and whether somebody trusted says so."""
        envelope = about(raw, artifact)
        if envelope is None:
            return Provenance()
        said = envelope.statement
        trusted = vouching(self.trusted, envelope) is not None
        return Provenance(True, bool(envelope.signatures), trusted, said.builder, said.revision)

    def to_come(self) -> Provenance:
        """Of what a build on this machine would give now."""
        signer, revision = self.signer, self.revision
        trusted = signer is not None and signer.keyid in {k.keyid for k in self.trusted}
        commit = "" if revision.dirty else revision.commit
        return Provenance(True, signer is not None, trusted, attest.builder_id(self._session.environ), commit)


def revision_of(root: Path) -> Revision:
    """The commit that is checked out, and whether the project's folder has more than that."""
    try:
        repository = Repository(root)
    except EdgespecError:
        return Revision()
    try:
        head = repository.resolve("HEAD")
        return Revision(shown_origin(repository.origin()), head.commit, repository.is_dirty((FOLDER,)))
    except EdgespecError:  # nothing is committed yet
        return Revision()
    finally:
        repository.close()


def shown_origin(origin: str) -> str:
    """A remote's address without who asks: `git+https://github.com/acme/shop`."""
    if found := _SCP.fullmatch(origin):
        return f"git+ssh://{found[1]}/{found[2]}"
    parts = urlsplit(origin)
    if not parts.scheme or parts.scheme == "file":
        return "git+file:project"
    host = parts.hostname or ""
    where = f"{host}:{parts.port}" if parts.port else host
    return f"git+{urlunsplit((parts.scheme, where, parts.path, '', ''))}"
