"""Ed25519 keys: who signs statements, and whose signatures are trusted. `cryptography` is imported where a key is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edgespec.attestation import Envelope, Signature
from edgespec.diagnostics import Diagnostic, EdgespecError, SourceRange, error
from edgespec.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNING_KEY: Final = "EDGESPEC_SIGNING_KEY"
_HOW: Final = "Make one with `openssl genpkey -algorithm ed25519 -out release.pem`"
_LIMIT: Final = 64 * 2**10


@dataclass(frozen=True, slots=True)
class PublicKey:
    """`keyid` is the SHA-256 of the key's DER (SubjectPublicKeyInfo)."""

    keyid: str
    name: str
    """Where it is from, for people."""
    key: Ed25519PublicKey

    def vouches(self, envelope: Envelope) -> bool:
        """Whether one of the signatures is made with this key, whatever keyid it claims."""
        from cryptography.exceptions import InvalidSignature

        for signature in envelope.signatures:
            try:
                self.key.verify(signature.value, envelope.signed_bytes)
            except InvalidSignature:
                continue
            return True
        return False


@dataclass(frozen=True, slots=True)
class Signer:
    keyid: str
    key: Ed25519PrivateKey

    def sign(self, payload: bytes) -> Envelope:
        unsigned = Envelope(payload)
        return Envelope(payload, (Signature(self.keyid, self.key.sign(unsigned.signed_bytes)),))

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.keyid, SIGNING_KEY, self.key.public_key())


def signer_of(environ: Mapping[str, str]) -> Signer | None:
    """The key in EDGESPEC_SIGNING_KEY, a PEM or the name of a file with one; None where it is not set. Raises ES730."""
    given = environ.get(SIGNING_KEY, "").strip()
    if not given:
        return None
    pem = given if given.startswith("-----BEGIN") else _read(Path(given))
    secret = Secret(SIGNING_KEY, pem.replace("\\n", "\n"))  # as CI systems keep several lines in one
    for row in secret.reveal().splitlines():
        if row and not row.startswith("-----"):
            secret.derive("a line of it", row)  # whoever quotes a key quotes a line of it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(secret.reveal().encode(), password=None)
    except (ValueError, TypeError):
        raise _unusable("it is no private key in PEM without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable("it is a key of another kind than Ed25519")
    return Signer(_keyid(key.public_key()), key)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as f:
            return f.read(_LIMIT).decode("ascii", "replace")
    except OSError as e:
        raise _unusable(f"it is no PEM and no file that can be read ({e.strerror})") from None


def _unusable(why: str) -> EdgespecError:
    return EdgespecError(error("ES730", "The signing key cannot be used", f"{SIGNING_KEY}: {why}. {_HOW}."))


def public_key(path: Path, shown: str, source: SourceRange | None = None) -> PublicKey:
    """A trusted key's file; `source` is where it is named. Raises ES731."""
    found = _public_key(path, shown)
    if isinstance(found, PublicKey):
        return found
    raise EdgespecError(Diagnostic(found.severity, found.code, found.summary, found.detail, source))


def _public_key(path: Path, shown: str) -> PublicKey | Diagnostic:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    summary, how = (
        "A trusted key cannot be used",
        "Write it with `openssl pkey -in release.pem -pubout -out release.pub`",
    )
    try:
        raw = path.read_bytes()
    except OSError as e:
        return error("ES731", summary, f"{shown}: {e.strerror}. Paths are relative to edgespec.yaml.")
    if b"PRIVATE KEY" in raw:
        detail = (
            f"{shown} is a private key: it belongs into {SIGNING_KEY} and into no repository. {how}, and name that."
        )
        return error("ES731", summary, detail)
    try:
        key = load_pem_public_key(raw)
    except ValueError:
        return error("ES731", summary, f"{shown} is no public key in PEM. {how}.")
    if not isinstance(key, Ed25519PublicKey):
        return error("ES731", summary, f"{shown} is a key of another kind than Ed25519. {how}.")
    return PublicKey(_keyid(key), shown, key)


def _keyid(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def vouching(keys: Iterable[PublicKey], envelope: Envelope) -> PublicKey | None:
    """The first of the keys that has signed it."""
    return next((k for k in keys if k.vouches(envelope)), None)
