"""Statements of provenance on the real local edge: made, stored, verified, asked by policies, removed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgespec import operations, provenance
from edgespec.artifact import KEY_PREFIX
from edgespec.attestation import Envelope, Signature, key_of
from edgespec.build import attest
from edgespec.diagnostics import EdgespecError, RefusedError
from edgespec.promotion import promote
from edgespec.session import connect
from edgespec.values import sha256_hex
from edgespec.verification import Verification
from tests.e2e.conftest import TinyProject
from tests.tiny import EXAMPLES, write_examples

PEM = serialization.Encoding.PEM


def new_key() -> tuple[str, bytes]:
    """A private key and its public half, both in PEM."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    return private, key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


RELEASE, STRANGER = new_key(), new_key()


@pytest.fixture
def signed(project: TinyProject) -> TinyProject:
    """Whose statements are signed with RELEASE, which it trusts."""
    project.environ["EDGESPEC_SIGNING_KEY"] = RELEASE[0]
    (project.root / "keys").mkdir()
    (project.root / "keys" / "release.pub").write_bytes(RELEASE[1])
    edit(project, provenance={"keys": ["keys/release.pub"]})
    return project


def edit(project: TinyProject, **fields: Any) -> None:
    path = project.root / "edgespec.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **fields}, sort_keys=False))


@contextlib.contextmanager
def bucket(project: TinyProject) -> Iterator[tuple[Any, str]]:
    with contextlib.closing(connect(project.session())) as account:
        yield account.s3("default"), f"{project.name}-local-auto"


def keys_in(project: TinyProject) -> set[str]:
    with bucket(project) as (s3, name):
        return {o["Key"] for o in s3.list_objects_v2(Bucket=name).get("Contents", [])}


def put(project: TinyProject, key: str, data: bytes) -> None:
    with bucket(project) as (s3, name):
        s3.put_object(Bucket=name, Key=key, Body=data)


def get(project: TinyProject, key: str) -> bytes:
    with bucket(project) as (s3, name):
        return bytes(s3.get_object(Bucket=name, Key=key)["Body"].read())


def failed(found: Verification) -> dict[str, str]:
    return {c.name: c.said for c in found.checks if c.ok is False}


def verify(project: TinyProject, key: Path | None = None) -> Verification:
    return provenance.verify(project.session(), "tiny", key)


def test_signed_stored_and_verified_until_somebody_touches_it(signed: TinyProject, tmp_path: Path) -> None:
    signed.apply_well()
    found = verify(signed)
    artifact = found.artifact
    assert (failed(found), [c for c in found.checks if c.ok is None]) == ({}, [])
    assert {c.name for c in found.checks} == {"worker", "manifest", "chunks", "statement", "signature"}
    assert found.signed_by
    assert signed.plan().plan.is_empty

    stranger = tmp_path / "stranger.pub"
    stranger.write_bytes(STRANGER[1])
    assert "by no trusted key" in failed(verify(signed, stranger))["signature"]

    chunk = next(k for k in sorted(keys_in(signed)) if k.startswith(KEY_PREFIX) and artifact not in k)
    whole = get(signed, chunk)
    put(signed, chunk, whole[:-1] + bytes([whole[-1] ^ 1]))  # as long as it was: no list of objects shows it
    assert signed.plan().plan.is_empty
    assert chunk.removeprefix(KEY_PREFIX)[:12] in failed(verify(signed))["chunks"]
    with bucket(signed) as (s3, name):
        s3.delete_object(Bucket=name, Key=chunk)
    assert "is gone" in failed(verify(signed))["chunks"]
    put(signed, chunk, whole)

    envelope = get(signed, key_of(artifact))
    _forge(signed, artifact, envelope)
    put(signed, key_of(artifact), envelope)
    manifest = get(signed, KEY_PREFIX + artifact)
    put(signed, KEY_PREFIX + artifact, manifest.replace(b"refund", b"Refund"))
    assert "it was changed" in failed(verify(signed))["manifest"]
    put(signed, KEY_PREFIX + artifact, manifest)
    assert failed(verify(signed)) == {}

    with bucket(signed) as (s3, name):
        s3.delete_object(Bucket=name, Key=key_of(artifact))
    assert failed(verify(signed)) == {"statement": "there is none"}


def _forge(project: TinyProject, artifact: str, raw: bytes) -> None:
    """Every way to have a statement that is not what somebody trusted has said."""
    envelope = Envelope.decode(raw)
    changed = Envelope(envelope.payload.replace(b"builder:local", b"builder:other"), envelope.signatures)
    put(project, key_of(artifact), changed.encode())
    assert "by no trusted key" in failed(verify(project))["signature"]
    for signatures in ((), (Signature(envelope.signatures[0].keyid, b"x" * 64),), (Signature("", b""),)):
        put(project, key_of(artifact), Envelope(envelope.payload, signatures).encode())
        assert [*failed(verify(project))] == ["signature"]
    other = envelope.payload.replace(artifact.encode(), b"0" * 64)
    put(project, key_of(artifact), Envelope(other, envelope.signatures).encode())
    assert "it is about 000000000000" in failed(verify(project))["statement"]
    for nonsense in (
        b"{}",
        b"[1]",
        b"\xff",
        json.dumps({"payloadType": "x", "payload": "", "signatures": []}).encode(),
    ):
        put(project, key_of(artifact), nonsense)
        assert [*failed(verify(project))] == ["statement"]


def test_statements_go_with_their_artifacts(signed: TinyProject) -> None:
    signed.apply_well()
    first = verify(signed).artifact
    edit(signed, environments={"local": {"target": {"type": "local", "port": 0}, "keep": 0}})
    signed.write_spec(quantization={"method": "none"})
    signed.apply_well()
    second = verify(signed).artifact
    assert {k for k in keys_in(signed) if k.startswith("provenance/")} == {key_of(second)}
    assert first != second
    edit(signed, environments={"local": {"target": {"type": "local", "port": 0}, "keep": 1}})
    signed.write_spec()
    signed.apply_well()
    assert {k for k in keys_in(signed) if k.startswith("provenance/")} == {key_of(first), key_of(second)}
    assert failed(verify(signed)) == {}
    signed.apply_well(destroy=True)  # the bucket goes, so that nothing was left in it
    assert not signed.state().records


def test_artifacts_that_somebody_took_away_leave_nothing_behind(project: TinyProject) -> None:
    """State forgets weights that are gone; their statement must not keep the bucket from going."""
    project.apply_well()
    with bucket(project) as (s3, name):
        doomed = [{"Key": k} for k in keys_in(project) if k.startswith(KEY_PREFIX)]
        s3.delete_objects(Bucket=name, Delete={"Objects": doomed})
    assert [k.partition("/")[0] for k in keys_in(project)] == ["provenance"]
    project.apply_well(destroy=True)
    assert not project.state().records


def test_nobody_signed_and_nobody_is_trusted(project: TinyProject) -> None:
    head = {"head": {"train": "data/train.jsonl", "seed": 12}}
    project.write_spec(model={"source": "./models/tiny", "pipeline": [head]})
    project.apply_well()
    found = verify(project)
    assert (found.passed, found.signed_by) == (True, "")
    assert next(c.said for c in found.checks if c.ok is None).startswith("signed by nobody; name trusted keys")
    with pytest.raises(EdgespecError, match="ES139"):
        provenance.verify(project.session(), "tony")

    (project.root / "release.pub").write_bytes(RELEASE[1])
    edit(project, provenance={"keys": ["release.pub"]})
    assert failed(verify(project)) == {"signature": "signed by nobody"}
    project.environ["EDGESPEC_SIGNING_KEY"] = RELEASE[0]  # deployed before there was a key
    assert provenance.attest(project.session(), "tiny") == (f"{project.name}-local-auto",)
    assert failed(verify(project)) == {}
    write_examples(project.root / "data" / "train.jsonl", {**EXAMPLES, "other": ("hi", "hello")})
    project.environ["EDGESPEC_SIGNING_KEY"] = STRANGER[0]
    assert provenance.attest(project.session(), "tiny")  # what somebody trusted has said is still there
    assert failed(verify(project)) == {}
    (project.root / "release.pub").write_bytes(STRANGER[1])
    project.environ["EDGESPEC_CACHE_DIR"] = str(project.root / "nothing-in-it")
    with pytest.raises(EdgespecError, match="ES732"):
        provenance.attest(project.session(), "tiny")


def test_production_takes_what_somebody_trusted_has_built(signed: TinyProject) -> None:
    head = {"head": {"train": "data/train.jsonl", "seed": 11}}  # an artifact that nobody has built and signed before
    signed.write_spec(model={"source": "./models/tiny", "pipeline": [head]})
    rule = {"name": "trusted", "when": "!model.provenance.trusted", "deny": "Let CI build it."}
    edit(signed, policies=[rule])
    planned = signed.plan()  # not built yet: what a build here would give
    assert not planned.review.verdicts
    del signed.environ["EDGESPEC_SIGNING_KEY"]
    assert [v.about for v in signed.plan().review.verdicts] == [("tiny",)]
    with pytest.raises(RefusedError, match="ES230"):
        signed.apply()
    signed.environ["EDGESPEC_SIGNING_KEY"] = STRANGER[0]
    assert signed.plan().review.verdicts
    signed.environ["EDGESPEC_SIGNING_KEY"] = RELEASE[0].replace("\n", "\\n")  # as some CI systems hand it over
    signed.apply_well()
    del signed.environ["EDGESPEC_SIGNING_KEY"]  # it is deployed: its bucket says who built it
    edit(signed, policies=[rule, {**rule, "name": "of-a-commit", "when": 'model.provenance.revision == ""'}])
    assert [v.policy for v in signed.plan().review.verdicts] == ["of-a-commit"]
    assert not signed.plan(destroy=True).review.verdicts  # what goes needs nobody's word


def test_a_cache_is_no_authority(signed: TinyProject) -> None:
    """What a cache says is signed with a key, and is not, is made anew."""
    signed.apply_well()
    artifact = verify(signed).artifact
    session = signed.session()
    key = Envelope.decode(get(signed, key_of(artifact))).signatures[0].keyid
    forged = json.loads(get(signed, key_of(artifact)))
    payload = base64.b64decode(forged["payload"]).replace(b"builder:local", b"builder:other")
    forged["payload"] = base64.b64encode(payload).decode()
    attest.keep(session.cache, None, artifact, key, json.dumps(forged).encode())
    signed.apply_well(destroy=True)
    signed.apply_well()
    assert failed(verify(signed)) == {}


def test_a_promotion_takes_the_statement_along(signed: TinyProject, tmp_path: Path) -> None:
    """From staging to a production that trusts CI alone, on a machine without the key, without the build."""
    target = {"target": {"type": "local", "port": 0}}
    rule = {
        "name": "trusted",
        "when": "!model.provenance.trusted",
        "deny": "CI builds.",
        "environments": ["production"],
    }
    both = {"local": target, "production": {**target, "promote_from": "local"}}
    edit(signed, environments=both, policies=[rule])
    signed.write_spec(quality={"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.1}}})
    signed.apply_well()
    (promoted,) = promote(signed.root, (), signed.environ, lambda _: None, source="local", target="production").promoted
    statement = get(signed, key_of(promoted.after.artifact))
    assert promoted.after.provenance == sha256_hex(statement)

    del signed.environ["EDGESPEC_SIGNING_KEY"]
    signed.environ["EDGESPEC_CACHE_DIR"] = str(tmp_path / "another-machine")
    session = operations.open_session(signed.root, "production", signed.environ, lambda _: None)
    applied = operations.apply(session, approve=lambda _: True, on_event=lambda _: None)
    assert applied.result is not None and not applied.result.diagnostics.has_errors
    assert {c.name for c in provenance.verify(session, "tiny").checks if c.ok} >= {"signature", "release", "chunks"}
    place = {"Bucket": f"{signed.name}-production-auto", "Key": key_of(promoted.after.artifact)}
    with contextlib.closing(connect(session)) as account:
        account.s3("default").put_object(**place, Body=statement + b" ")
    assert [*failed(provenance.verify(session, "tiny"))] == ["release"]
    operations.apply(session, destroy=True, approve=lambda _: True, on_event=lambda _: None)


@pytest.mark.parametrize(
    "key", ["nothing", "-----BEGIN PRIVATE KEY-----\nMC4CAQ\n-----END PRIVATE KEY-----\n", os.devnull]
)
def test_a_key_that_is_none(project: TinyProject, key: str) -> None:
    project.environ["EDGESPEC_SIGNING_KEY"] = key
    with pytest.raises(EdgespecError, match="ES730") as raised:
        project.apply_well()
    assert "MC4CAQ" not in str(raised.value)
    assert not project.plan(destroy=True).plan.desired.resources  # what removes things needs no key
    project.environ["EDGESPEC_SIGNING_KEY"] = ""
    edit(project, provenance={"keys": ["gone.pub"]})
    with pytest.raises(EdgespecError, match=r"edgespec\.yaml:\d+:\d+: error ES731"):
        project.plan()
    del project.environ["EDGESPEC_SIGNING_KEY"]
