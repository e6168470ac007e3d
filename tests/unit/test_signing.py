"""Envelopes, keys and statements: what is read, what is refused, what is told of a key."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from edgespec import assets
from edgespec.attestation import PAYLOAD, Envelope, Signature, key_of
from edgespec.build import attest
from edgespec.build.cache import Cache
from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import EdgespecError
from edgespec.secret import scrub
from edgespec.signing import SIGNING_KEY, public_key, signer_of, vouching
from edgespec.spec.models import EdgeModel
from edgespec.statements import revision_of, shown_origin
from tests.cases.diff_cases import Git
from tests.tiny import tiny_spec, write_tiny_project

PKCS8, PLAIN = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
PEM, SPKI = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo


def pem(key: Any) -> str:
    return str(key.private_bytes(PEM, PKCS8, PLAIN).decode())


KEY = ed25519.Ed25519PrivateKey.generate()
OTHER = ed25519.Ed25519PrivateKey.generate()


# --- envelopes


def test_the_encoding_that_is_signed_is_that_of_the_protocol() -> None:
    """https://github.com/secure-systems-lab/dsse/blob/master/protocol.md"""
    assert Envelope(b"hello world").signed_bytes == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"


@given(st.binary(max_size=200), st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=64)), max_size=3))
def test_an_envelope_reads_back(payload: bytes, signatures: list[tuple[str, bytes]]) -> None:
    made = Envelope(payload, tuple(Signature(keyid, value) for keyid, value in signatures))
    raw = made.encode()
    assert Envelope.decode(raw) == made
    assert assets.schema_error("provenance", json.loads(raw)) is None


def test_both_alphabets_of_base64_are_read() -> None:
    payload = bytes([0xFB, 0xFF, 0xFE])
    raw = json.dumps({"payloadType": PAYLOAD, "payload": base64.urlsafe_b64encode(payload).decode(), "signatures": []})
    assert Envelope.decode(raw.encode()).payload == payload


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.text(max_size=3), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_what_is_no_envelope_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no DSSE envelope"):
        Envelope.decode(raw)


# --- keys


def test_a_signature_is_good_for_its_key_and_its_payload(tmp_path: Path) -> None:
    path = tmp_path / "release.pem"
    path.write_text(pem(KEY))
    for given_as in (pem(KEY), str(path), pem(KEY).replace("\n", "\\n")):
        signer = signer_of({SIGNING_KEY: given_as})
        assert signer is not None
    envelope = signer.sign(b"payload")
    assert signer.public.vouches(envelope)
    assert not signer.public.vouches(Envelope(b"Payload", envelope.signatures))
    stranger = signer_of({SIGNING_KEY: pem(OTHER)})
    assert stranger is not None
    assert not stranger.public.vouches(envelope)
    claims = Envelope(b"payload", (Signature(signer.keyid, stranger.sign(b"payload").signatures[0].value),))
    assert not signer.public.vouches(claims)
    assert vouching([stranger.public, signer.public], envelope) == signer.public
    both = Envelope(b"payload", (*stranger.sign(b"payload").signatures, *envelope.signatures))
    assert signer.public.vouches(both)


def test_openssl_agrees(tmp_path: Path) -> None:
    """Keys that it makes are read, and it checks what is signed here."""
    private, public = tmp_path / "k.pem", tmp_path / "k.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    signer = signer_of({SIGNING_KEY: str(private)})
    assert signer is not None and signer.keyid == public_key(public, "k.pub").keyid
    envelope = signer.sign(b"payload")
    (tmp_path / "signed").write_bytes(envelope.signed_bytes)
    (tmp_path / "sig").write_bytes(envelope.signatures[0].value)
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", tmp_path / "signed"]
    subprocess.run([*command, "-sigfile", tmp_path / "sig"], check=True, capture_output=True)


def test_no_key_is_no_signer() -> None:
    assert signer_of({}) is None
    assert signer_of({SIGNING_KEY: " "}) is None


def test_keys_that_cannot_sign(tmp_path: Path) -> None:
    encrypted = KEY.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"pw")).decode()
    other_kind = pem(rsa.generate_private_key(65537, 2048))
    for bad in ("/nowhere/key.pem", str(tmp_path), encrypted, other_kind, "-----BEGIN PRIVATE KEY-----\nzzz"):
        with pytest.raises(EdgespecError, match="ES730"):
            signer_of({SIGNING_KEY: bad})


def test_a_key_is_taken_out_of_whatever_is_said() -> None:
    text = pem(OTHER)
    signer_of({SIGNING_KEY: text})
    body = text.splitlines()[1]
    assert body not in scrub(f"somebody quotes {body}")


def test_trusted_keys_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "k.pub"
    cases: dict[bytes, str] = {
        pem(KEY).encode(): "is a private key",
        b"hello": "no public key in PEM",
        rsa.generate_private_key(65537, 2048).public_key().public_bytes(PEM, SPKI): "another kind than Ed25519",
    }
    for content, why in cases.items():
        path.write_bytes(content)
        with pytest.raises(EdgespecError, match=f"ES731.*{why}"):
            public_key(path, "k.pub")
    with pytest.raises(EdgespecError, match=r"ES731.*No such file"):
        public_key(tmp_path / "gone.pub", "gone.pub")


# --- statements


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_tiny_project(tmp_path / "project")


def build(root: Path, tmp_path: Path) -> tuple[Any, Any]:
    pipeline = Pipeline(root, Cache(tmp_path / "cache"), lambda _: None)
    spec = EdgeModel.model_validate(tiny_spec())
    assert pipeline.built(spec) is None
    pipeline.build(spec)
    found = pipeline.built(spec)
    assert found is not None
    return found


def test_a_statement_says_what_was_read_and_by_whom(project: Path, tmp_path: Path) -> None:
    git = Git(project)
    git.run("remote", "add", "origin", "https://ana:ghp_secret@example.com/acme/shop.git")
    commit = git.commit({})
    made, manifest = build(project, tmp_path)
    envelope = attest.made(made, manifest, revision_of(project), {attest.BUILDER_ID: "https://ci.example.com/1"}, None)
    assert assets.schema_error("statement", json.loads(envelope.payload)) is None
    statement = envelope.statement
    assert (statement.builder, statement.revision) == ("https://ci.example.com/1", commit)
    assert statement.names(manifest.digest) and not statement.names("0" * 64)
    read = {d.uri: d.digest for d in statement.predicate.buildDefinition.resolvedDependencies}
    assert read["git+https://example.com/acme/shop.git"] == {"gitCommit": commit}
    assert {"file:models/tiny/model.safetensors", "file:data/train.jsonl"} <= read.keys()
    assert b"ghp_secret" not in envelope.payload and str(project).encode() not in envelope.payload
    again = attest.made(made, manifest, revision_of(project), {attest.BUILDER_ID: "https://ci.example.com/1"}, None)
    assert again == envelope  # no clock, no chance

    git.write({"data/train.jsonl": "{}\n"})
    dirty = attest.made(made, manifest, revision_of(project), {}, None).statement
    assert (dirty.revision, dirty.builder) == ("", "urn:edgespec:builder:local")
    git.run("checkout", "-q", "data/train.jsonl")
    git.write({"releases/production.yaml": "promoted\n"})  # a promotion changes nothing that is built
    assert attest.made(made, manifest, revision_of(project), {}, None).statement.revision == commit


def test_no_git_no_revision(project: Path, tmp_path: Path) -> None:
    (project / ".git").write_text("gitdir: /nowhere\n")
    assert revision_of(project) == attest.Revision()
    (project / ".git").unlink()
    Git(project)
    assert revision_of(project) == attest.Revision()  # nothing is committed


@pytest.mark.parametrize(
    ("origin", "shown"),
    [
        ("https://github.com/acme/shop", "git+https://github.com/acme/shop"),
        ("https://x-access-token:t0ken@github.com:8443/acme/shop?a=b#c", "git+https://github.com:8443/acme/shop"),
        ("git@github.com:acme/shop.git", "git+ssh://github.com/acme/shop.git"),
        ("ssh://git@github.com/acme/shop", "git+ssh://github.com/acme/shop"),
        ("/srv/git/shop.git", "git+file:project"),
        ("file:///srv/git/shop.git", "git+file:project"),
        ("", "git+file:project"),
    ],
)
def test_addresses_tell_of_nobody(origin: str, shown: str) -> None:
    assert shown_origin(origin) == shown


def test_who_builds() -> None:
    github = {"GITHUB_ACTIONS": "true", "GITHUB_WORKFLOW_REF": "acme/shop/.github/workflows/apply.yml@refs/heads/main"}
    assert attest.builder_id(github) == f"https://github.com/{github['GITHUB_WORKFLOW_REF']}"
    gitlab = {"GITLAB_CI": "true", "CI_PROJECT_URL": "https://gitlab.com/acme/shop"}
    assert attest.builder_id(gitlab) == "https://gitlab.com/acme/shop//.gitlab-ci.yml"
    assert attest.builder_id({"GITHUB_WORKFLOW_REF": "x"}) == "urn:edgespec:builder:local"
    assert attest.builder_id({**github, "EDGESPEC_BUILDER_ID": "urn:acme"}) == "urn:acme"


def test_statements_are_kept_by_key(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    attest.keep(cache, None, "a" * 64, "", b"unsigned")
    attest.keep(cache, None, "a" * 64, "k1", b"signed")
    assert attest.kept(cache, None, "a" * 64, "") == b"unsigned"
    assert attest.kept(cache, None, "a" * 64, "k1") == b"signed"
    assert attest.kept(cache, None, "a" * 64, "k2") is None
    assert attest.kept(cache, None, "b" * 64, "") is None
    assert key_of("a" * 64) == f"provenance/{'a' * 64}.json"
