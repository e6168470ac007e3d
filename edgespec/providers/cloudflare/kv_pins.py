"""Chunks kept in Workers KV without expiry. Same rules as weights: named by content, shared ones are kept."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from edgespec.address import Address
from edgespec.artifact import KEY_PREFIX, Chunk, Manifest
from edgespec.providers.base import Observed, Progress, ProviderError
from edgespec.providers.cloudflare.account import Account, Doing, api_errors, missing_is_fine
from edgespec.providers.cloudflare.blobs import Blobs
from edgespec.providers.cloudflare.live import Live
from edgespec.spec.units import format_size
from edgespec.state.model import ResourceRecord
from edgespec.values import Inputs, Outputs

_CALL_BYTES: Final = 48 * 2**20
"""Bytes of chunks in one bulk call; base64 makes 64 MiB of them, and the API takes less than 100 MB."""
_CALL_KEYS: Final = 10_000
_TRIES: Final = 4


class KvPinsProvider:
    def __init__(self, account: Account, live: Live, blobs: Blobs) -> None:
        self._account = account
        self._live = live
        self._blobs = blobs

    def read(self, record: ResourceRecord) -> Observed | None:
        namespace = str(record.inputs["namespace_id"])
        wanted = {c.sha256 for c in pinned_chunks(record.inputs)}
        with api_errors(record.address, "Listing pinned keys"):
            there = self._live.pinned(namespace) if namespace in self._live.namespaces() else None
        if there is None or not wanted & there:
            return None
        return Observed(record.inputs, {}, complete=wanted <= there)

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        """Keys are named by content, so that writing them again changes nothing; the nonce goes beside each value."""
        path_of = self._blobs(address.name, str(inputs["artifact"]))
        chunks = pinned_chunks(inputs)
        total, done = sum(c.size for c in chunks), 0
        with api_errors(address, "Pinning chunks in KV") as call:
            for batch in _batches(chunks):
                pairs = [
                    {
                        "key": KEY_PREFIX + c.sha256,
                        "value": base64.b64encode(path_of(c.sha256).read_bytes()).decode(),
                        "base64": True,
                        "metadata": {"edgespec": nonce},
                    }
                    for c in batch
                ]
                self._write(address, str(inputs["namespace_id"]), pairs, call)
                done += sum(c.size for c in batch)
                progress(f"{format_size(done)} of {format_size(total)}", done / total)
        return {}

    def _write(self, address: Address, namespace: str, pairs: list[dict[str, Any]], call: Doing) -> None:
        """A bulk write may answer 200 and name keys that it did not take: just those are sent again."""
        pace = self._account.pace
        for tried in range(_TRIES):
            body: Any = pairs
            result = self._account.sdk.kv.namespaces.bulk_update(namespace, account_id=self._account.id, body=body)
            call.begun = True
            failed = frozenset((result.unsuccessful_keys if result else None) or ())
            pairs = [p for p in pairs if p["key"] in failed]
            if not pairs:
                return
            if tried < _TRIES - 1:
                pace.wait(pace.spread(2.0**tried))  # a key takes one write a second
        detail = f"KV did not take {len(pairs)} of the keys after {_TRIES} tries. Run apply again."
        raise ProviderError(address, "Pinning chunks in KV failed", detail)

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return self.create(record.address, inputs, progress)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        namespace = str(record.inputs["namespace_id"])
        doomed = {c.sha256 for c in pinned_chunks(record.inputs)}
        for other in others:
            if other.inputs["namespace_id"] == namespace:
                doomed -= {c.sha256 for c in pinned_chunks(other.inputs)}
        keys = [KEY_PREFIX + sha for sha in sorted(doomed)]
        with api_errors(record.address, "Unpinning chunks"), missing_is_fine():
            for i in range(0, len(keys), _CALL_KEYS):
                self._remove(record.address, namespace, keys[i : i + _CALL_KEYS])

    def _remove(self, address: Address, namespace: str, keys: list[str]) -> None:
        for _ in range(_TRIES):
            result = self._account.sdk.kv.namespaces.bulk_delete(namespace, account_id=self._account.id, body=keys)
            keys = list((result.unsuccessful_keys if result else None) or ())
            if not keys:
                return
        detail = f"KV did not remove {len(keys)} of the keys after {_TRIES} tries. Run apply again."
        raise ProviderError(address, "Unpinning chunks failed", detail)


def pinned_chunks(inputs: Inputs) -> tuple[Chunk, ...]:
    """The distinct chunks of the pinned files."""
    raw: Any = inputs["manifest"]
    files: Any = inputs["files"]
    manifest = Manifest.from_json(raw)
    return tuple(sorted({c for name in files if name in manifest.files for c in manifest.files[name].chunks}))


def _batches(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    found: list[list[Chunk]] = []
    size = 0
    for chunk in chunks:
        if not found or size + chunk.size > _CALL_BYTES or len(found[-1]) == _CALL_KEYS:
            found.append([])
            size = 0
        found[-1].append(chunk)
        size += chunk.size
    return found
