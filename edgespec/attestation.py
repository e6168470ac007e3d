"""Where an artifact comes from, as a statement that others can read and check: in-toto Statement v1 with the predicate
SLSA Provenance v1, in a DSSE envelope. Pure: bytes in, bytes out; keys are elsewhere (edgespec/signing.py).

A statement is about an artifact and no part of it: artifacts stay the same byte for byte, whoever builds them.
https://github.com/in-toto/attestation, https://slsa.dev/spec/v1.0/provenance, https://github.com/secure-systems-lab/dsse
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from edgespec.values import canonical_json

if TYPE_CHECKING:
    from edgespec.attestation_schema import StatementDocument

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
PAYLOAD: Final = "application/vnd.in-toto+json"
BUILD_TYPE: Final = "urn:edgespec:build:v1"
"""What `externalParameters` and `internalParameters` mean: docs/provenance.md."""
LOCAL_BUILDER: Final = "urn:edgespec:builder:local"
"""A machine that nobody vouches for."""
KEY_PREFIX: Final = "provenance/"
LIMIT: Final = 4 * 2**20
"""Bytes of an envelope."""


def key_of(artifact: str) -> str:
    """Of the object beside an artifact's blobs."""
    return f"{KEY_PREFIX}{artifact}.json"


# --- envelopes -------------------------------------------------------------------------------------------------------


class Signature(Struct, frozen=True):
    keyid: str
    value: bytes


class Envelope(Struct, frozen=True):
    payload: bytes
    signatures: tuple[Signature, ...] = ()

    @property
    def signed_bytes(self) -> bytes:
        """DSSE's pre-authentication encoding: what a signature is made of."""
        kind = PAYLOAD.encode()
        return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(self.payload), self.payload)

    @property
    def statement(self) -> StatementDocument:
        """Raises ValueError where it is none."""
        from pydantic import ValidationError

        from edgespec.attestation_schema import StatementDocument

        try:
            return StatementDocument.model_validate_json(self.payload)
        except ValidationError as e:
            where = ".".join(str(part) for part in e.errors()[0]["loc"])
            raise ValueError(f"it is no in-toto statement with SLSA provenance: {where or 'it'} is wrong") from None

    def encode(self) -> bytes:
        return canonical_json(
            {
                "payloadType": PAYLOAD,
                "payload": base64.b64encode(self.payload).decode(),
                "signatures": [{"keyid": s.keyid, "sig": base64.b64encode(s.value).decode()} for s in self.signatures],
            }
        ).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Envelope:
        """Raises ValueError for what is no DSSE envelope of an in-toto statement."""
        try:
            found = json.loads(raw)
            kind, payload = found["payloadType"], _decoded(found["payload"])
            signatures = tuple(Signature(str(s.get("keyid", "")), _decoded(s["sig"])) for s in found["signatures"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise ValueError("it is no DSSE envelope") from e
        if kind != PAYLOAD:
            raise ValueError(f"it holds {kind!r}, not an in-toto statement")
        return cls(payload, signatures)


def _decoded(text: str) -> bytes:
    """Either alphabet of base64, as DSSE asks."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)


def about(raw: bytes | None, artifact: str) -> Envelope | None:
    """The envelope of a statement about the artifact; None for anything else. Whose it is is not asked."""
    if raw is None:
        return None
    try:
        envelope = Envelope.decode(raw)
        return envelope if envelope.statement.names(artifact) else None
    except ValueError:
        return None


# --- statements ------------------------------------------------------------------------------------------------------


def statement_of(
    name: str,
    artifact: str,
    *,
    external: Mapping[str, Any],
    internal: Mapping[str, Any],
    dependencies: Sequence[Mapping[str, Any]],
    builder: str,
    versions: Mapping[str, str],
) -> bytes:
    """The payload: canonical JSON, so that the same build says the same. It has no times for that reason."""
    return canonical_json(
        {
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": artifact}}],
            "predicateType": PREDICATE,
            "predicate": {
                "buildDefinition": {
                    "buildType": BUILD_TYPE,
                    "externalParameters": dict(external),
                    "internalParameters": dict(internal),
                    "resolvedDependencies": [dict(d) for d in dependencies],
                },
                "runDetails": {"builder": {"id": builder, "version": dict(sorted(versions.items()))}},
            },
        }
    ).encode()
