"""`verify`: what a model serves is what its statement is about, byte for byte, and somebody trusted says so.

Reads the environment's account and its buckets; only `attest` writes, and only statements.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgespec import assets
from edgespec.address import Address
from edgespec.artifact import KEY_PREFIX, FileEntry, Manifest
from edgespec.attestation import Envelope
from edgespec.diagnostics import EdgespecError, error
from edgespec.providers.cloudflare.account import Account, api_errors
from edgespec.providers.cloudflare.provenance import fetched, put
from edgespec.resources import deployment, weights, worker
from edgespec.session import Session, connect, stored
from edgespec.signing import PublicKey, public_key, vouching
from edgespec.spec.units import format_size
from edgespec.state.model import ResourceRecord, State
from edgespec.statements import Statements
from edgespec.threads import spread
from edgespec.values import sha256_hex
from edgespec.verification import Check, Verification
from edgespec.web import trust

_AT_ONCE: Final = 4
_PART: Final = 1 << 20
_MANIFEST: Final = 16 * 2**20
"""Bytes that a manifest has at most."""
_SHOWN: Final = 12


def verify(session: Session, name: str, key: Path | None = None) -> Verification:
    """Check what is deployed as `name`. `key` is trusted instead of the project's keys. Raises where there is nothing
    to check, or no way to."""
    state, known = stored(session)
    session.workspace.check_names((name,), also=known)
    artifact, places = _deployed(session, state, name)
    keys = (public_key(key, str(key)),) if key is not None else Statements(session).trusted
    release = session.workspace.pins.get(name)
    with contextlib.closing(connect(session)) as account:
        checks = [_serving(account, state, name, artifact)]
        found = _Statement()
        for place in places:
            checks += _content(account, place, artifact)
            checks += found.check(account, place, artifact, keys, release.provenance if release else None)
    workspace = session.workspace
    return Verification(
        workspace.project.name,
        workspace.environment,
        name,
        artifact,
        tuple(checks),
        found.builder,
        found.revision,
        found.signed_by,
    )


def attest(session: Session, name: str) -> tuple[str, ...]:
    """Put the statement that this machine has, or can make, of what is deployed as `name` beside it: the buckets that
    got it. For what was deployed before there was a key. Raises where nobody here knows how it was built."""
    state, known = stored(session)
    session.workspace.check_names((name,), also=known)
    artifact, places = _deployed(session, state, name)
    raw = Statements(session).of(name, artifact)
    if raw is None:
        detail = (
            f"What {name} serves, {artifact[:_SHOWN]}, was not built on this machine from the files that are here now. "
            "Run it where it was built, at that commit; or build and apply it anew."
        )
        raise EdgespecError(error("ES732", "Nothing can be said of this artifact", detail))
    with contextlib.closing(connect(session)) as account:
        for place in places:
            with api_errors(place.address, "Writing provenance"):
                put(account, place.bucket, place.jurisdiction, artifact, raw, {})
    return tuple(p.bucket for p in places)


@dataclass(frozen=True, slots=True)
class _Place:
    bucket: str
    jurisdiction: str
    address: Address
    artifact: str
    """That the record says is there."""


def _deployed(session: Session, state: State, name: str) -> tuple[str, list[_Place]]:
    """The artifact of the newest version, and where its weights are."""
    version = state.get(Address(worker.TYPE.name, name))
    if version is None or state.get(Address(deployment.TYPE.name, name)) is None:
        detail = f"{name} is not deployed in {session.workspace.environment}. Run `edgespec apply` first."
        raise EdgespecError(error("ES405", "Not deployed", detail))
    records = [
        r
        for k, r in sorted(state.records.items())
        if k.address.type == weights.TYPE.name and not k.deposed and k.address.spec == name
    ]
    return str(version.inputs["artifact"]), list(_unique(records))


def _unique(records: Iterable[ResourceRecord]) -> Iterator[_Place]:
    seen: set[tuple[str, str]] = set()
    for r in records:
        place = _Place(str(r.inputs["bucket"]), str(r.inputs["jurisdiction"]), r.address, str(r.inputs["artifact"]))
        if (place.bucket, place.jurisdiction) not in seen:
            seen.add((place.bucket, place.jurisdiction))
            yield place


def _serving(account: Account, state: State, name: str, artifact: str) -> Check:
    """The Worker's own word: which artifact it loads."""
    import httpx

    record = state.get(Address(deployment.TYPE.name, name))
    script = state.get(Address(worker.TYPE.name, name))
    if record is None or script is None:
        raise TypeError("it was there a moment ago")
    url = account.worker_url(str(script.inputs["script"])) + "healthz"
    loopback = account.endpoints.is_loopback
    try:
        answer = httpx.get(url, timeout=60, trust_env=not loopback, verify=trust(url))
        said = str(answer.json()["artifact"])
    except (httpx.TransportError, ValueError, KeyError, TypeError) as e:
        return Check("worker", False, f"it does not say what it serves ({type(e).__name__})")
    if len(said) >= _SHOWN and artifact.startswith(said):
        return Check("worker", True, f"it serves {said}")
    return Check("worker", False, f"it serves {said}, and the newest version was to serve {artifact[:_SHOWN]}")


# --- content ---------------------------------------------------------------------------------------------------------


def _content(account: Account, place: _Place, artifact: str) -> Iterator[Check]:
    if place.artifact != artifact:
        detail = f"the bucket was given {place.artifact[:_SHOWN]}, and the version serves {artifact[:_SHOWN]}"
        yield Check("manifest", False, detail, place.bucket)
        return
    with api_errors(place.address, "Reading what is deployed"):
        raw = _object(account, place, KEY_PREFIX + artifact, _MANIFEST)
        if raw is None or sha256_hex(raw) != artifact:
            what = "it is gone" if raw is None else f"its digest is {sha256_hex(raw)[:_SHOWN]}: it was changed"
            yield Check("manifest", False, what, place.bucket)
            return
        yield Check("manifest", True, "it is the artifact's", place.bucket)
        yield _chunks(account, place, Manifest.decode(raw))


def _chunks(account: Account, place: _Place, manifest: Manifest) -> Check:
    """Every chunk as it is in the bucket, and every file as they make it up."""
    wanted = {c.sha256: c.size for c in manifest.chunks}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = spread(pool, lambda sha: _wrong(account, place, sha, wanted[sha]), sorted(wanted))
        wrong = [w for w in results if w is not None]
    wrong += [f"{name} is not made up of its chunks" for name, file in manifest.files.items() if not _adds_up(file)]
    if wrong:
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        return Check("chunks", False, "; ".join(wrong[:3]) + more, place.bucket)
    total = format_size(sum(wanted.values()))
    noun = "chunk" if len(wanted) == 1 else "chunks"
    return Check("chunks", True, f"{len(wanted)} {noun}, {total}: all as the manifest names them", place.bucket)


def _adds_up(file: FileEntry) -> bool:
    """A single chunk is the file; of more, their sizes are all that can be told without them."""
    if len(file.chunks) == 1:
        return file.chunks[0].sha256 == file.sha256 and file.chunks[0].size == file.size
    return sum(c.size for c in file.chunks) == file.size


def _wrong(account: Account, place: _Place, sha256: str, size: int) -> str | None:
    body = account.open_object(place.jurisdiction, place.bucket, KEY_PREFIX + sha256)
    if body is None:
        return f"chunk {sha256[:_SHOWN]} is gone"
    found, read = hashlib.sha256(), 0
    with contextlib.closing(body):
        while data := body.read(_PART):
            found.update(data)
            read += len(data)
    if found.hexdigest() == sha256 and read == size:
        return None
    return f"chunk {sha256[:_SHOWN]} was changed: its digest is {found.hexdigest()[:_SHOWN]}"


def _object(account: Account, place: _Place, key: str, limit: int) -> bytes | None:
    body = account.open_object(place.jurisdiction, place.bucket, key)
    if body is None:
        return None
    with contextlib.closing(body):
        return bytes(body.read(limit))


# --- statements ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Statement:
    """What the buckets' statements say; the last one's word, where they differ."""

    builder: str = ""
    revision: str = ""
    signed_by: str = ""

    def check(
        self, account: Account, place: _Place, artifact: str, keys: Sequence[PublicKey], promoted: str | None
    ) -> Iterator[Check]:
        with api_errors(place.address, "Reading provenance"):
            raw = fetched(account, place.bucket, place.jurisdiction, artifact)
        if raw is None:
            yield Check("statement", False, "there is none", place.bucket)
            return
        if (wrong := _not_one(raw, artifact)) is not None:
            yield Check("statement", False, wrong, place.bucket)
            return
        envelope = Envelope.decode(raw)
        said = envelope.statement
        self.builder, self.revision = said.builder, said.revision
        where = f" at {said.revision[:_SHOWN]}" if said.revision else ", of no commit"
        yield Check("statement", True, f"it is about this artifact: built by {said.builder}{where}", place.bucket)
        yield self._signature(envelope, keys, place.bucket)
        if promoted is not None:
            same = sha256_hex(raw) == promoted
            text = "it is the one that was promoted" if same else "it is another than the one that was promoted"
            yield Check("release", same, text, place.bucket)

    def _signature(self, envelope: Envelope, keys: Sequence[PublicKey], bucket: str) -> Check:
        by = ", ".join(s.keyid[:_SHOWN] or "an unnamed key" for s in envelope.signatures)
        if not keys:
            what = f"signed by {by}" if by else "signed by nobody"
            how = "name trusted keys under `provenance.keys` in edgespec.yaml, or one with --key"
            return Check("signature", None, f"{what}; {how}", bucket)
        trusted = vouching(keys, envelope)
        if trusted is None:
            who = f"by {by}, and by no trusted key" if by else "by nobody"
            return Check("signature", False, f"signed {who}", bucket)
        self.signed_by = trusted.keyid
        return Check("signature", True, f"signed by {trusted.name} ({trusted.keyid[:_SHOWN]})", bucket)


def _not_one(raw: bytes, artifact: str) -> str | None:
    """Why this is no statement of the artifact."""
    import json

    try:
        wrong = assets.schema_error("provenance", json.loads(raw))
        if wrong is not None:
            return f"it is no DSSE envelope, {wrong}"
        envelope = Envelope.decode(raw)
        wrong = assets.schema_error("statement", json.loads(envelope.payload))
        if wrong is not None:
            return f"it is no in-toto statement with SLSA provenance, {wrong}"
        about = envelope.statement
    except ValueError as e:
        return str(e)
    if about.names(artifact):
        return None
    others = ", ".join(s.digest.get("sha256", s.name)[:_SHOWN] for s in about.subject)
    return f"it is about {others}, not about {artifact[:_SHOWN]}"
