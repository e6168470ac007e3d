"""An artifact's blobs in a bucket. Keys are content digests: an upload of what is there already is skipped, and a
blob that another resource names is never deleted."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from edgespec.address import Address
from edgespec.artifact import KEY_PREFIX
from edgespec.attestation import key_of
from edgespec.providers.base import Observed, Progress, ProviderError
from edgespec.providers.cloudflare import provenance
from edgespec.providers.cloudflare.account import Account, api_errors
from edgespec.providers.cloudflare.blobs import Blobs, StatementOf, no_statement
from edgespec.providers.cloudflare.live import Live
from edgespec.spec.units import format_size
from edgespec.state.model import ResourceRecord
from edgespec.values import Inputs, Outputs

UPLOADS: Final = 4
"""Objects of one shard in flight at once; the account has a limit for all of them together."""
NONCE: Final = "edgespec-nonce"
"""The objects' metadata that says which create made them."""
_DELETE_BATCH: Final = 1000
_TRIES: Final = 3


class WeightsProvider:
    def __init__(self, account: Account, live: Live, blobs: Blobs, statement: StatementOf = no_statement) -> None:
        self._account = account
        self._live = live
        self._blobs = blobs
        self._statement = statement

    def read(self, record: ResourceRecord) -> Observed | None:
        wanted = _blob_sizes(record.inputs)
        with api_errors(record.address, "Listing the bucket"):
            there = self._objects(record.inputs)
        present = {sha for sha, size in wanted.items() if there.get(sha) == size}
        if not present:
            return None  # no bucket, or an empty one: either way nothing of it is there
        return Observed(record.inputs, _outputs(record.inputs), complete=present == set(wanted))

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return None  # blobs carry their content's name: finding some is no conflict, and create takes them as they are

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        with api_errors(address, "Uploading weights") as call:
            call.begun = True  # several objects: what failed may not be the first
            self._upload(address, inputs, progress, nonce)
            self._attest(address, inputs, nonce)
        return _outputs(inputs)

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return self.create(record.address, inputs, progress, record.nonce)

    def _upload(self, address: Address, inputs: Inputs, progress: Progress, nonce: str) -> None:
        self._live.forget()
        there = self._objects(inputs)
        missing = {sha: size for sha, size in _blob_sizes(inputs).items() if there.get(sha) != size}
        if not missing:
            return
        path_of = self._blobs(address.name.split("/")[0], str(inputs["artifact"]))
        s3, bucket = self._account.s3(str(inputs["jurisdiction"])), str(inputs["bucket"])
        total, done = sum(missing.values()), 0

        def put(sha: str) -> int:
            checksum = base64.b64encode(bytes.fromhex(sha)).decode()
            with self._account.uploads:
                data = path_of(sha).read_bytes()
                s3.put_object(
                    Bucket=bucket, Key=KEY_PREFIX + sha, Body=data, ChecksumSHA256=checksum, Metadata={NONCE: nonce}
                )
            return len(data)

        with ThreadPoolExecutor(UPLOADS) as pool:
            uploads = [pool.submit(put, sha) for sha in sorted(missing)]
            try:
                for upload in uploads:
                    done += upload.result()
                    progress(f"{format_size(done)} of {format_size(total)}", done / total)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _attest(self, address: Address, inputs: Inputs, nonce: str) -> None:
        """Puts the statement of where the artifact comes from beside it."""
        artifact = str(inputs["artifact"])
        raw = self._statement(address.name.split("/")[0], artifact)
        if raw is not None:
            place = str(inputs["bucket"]), str(inputs["jurisdiction"])
            provenance.put(self._account, *place, artifact, raw, {NONCE: nonce})

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        place = (record.inputs["bucket"], record.inputs["jurisdiction"])
        kept: set[str] = set()
        spoken_of: set[str] = set()
        for other in others:
            if (other.inputs["bucket"], other.inputs["jurisdiction"]) == place:
                kept |= set(_blob_sizes(other.inputs))
                spoken_of |= _artifacts(other.inputs)
        doomed = [KEY_PREFIX + sha for sha in sorted(set(_blob_sizes(record.inputs)) - kept)]
        doomed += [key_of(artifact) for artifact in sorted(_artifacts(record.inputs) - spoken_of)]
        s3 = self._account.s3(str(place[1]))
        with api_errors(record.address, "Deleting weights"):
            for i in range(0, len(doomed), _DELETE_BATCH):
                try:
                    self._remove(record.address, s3, str(place[0]), doomed[i : i + _DELETE_BATCH])
                except s3.exceptions.NoSuchBucket:
                    return

    def _remove(self, address: Address, s3: Any, bucket: str, keys: list[str]) -> None:
        """The call may answer 200 and name objects that it did not delete: just those are asked for again."""
        for _ in range(_TRIES):
            answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys], "Quiet": True})
            failed = answer.get("Errors", [])
            keys = [e["Key"] for e in failed]
            if not keys:
                return
        detail = f"R2 did not delete {len(keys)} objects ({failed[0].get('Code')}). Run apply again."
        raise ProviderError(address, "Deleting weights failed", detail)

    def _objects(self, inputs: Inputs) -> dict[str, int]:
        bucket, jurisdiction = str(inputs["bucket"]), str(inputs["jurisdiction"])
        if bucket not in self._live.buckets(jurisdiction):
            return {}
        return self._live.objects(bucket, jurisdiction) or {}


def _blob_sizes(inputs: Inputs) -> dict[str, int]:
    blobs: Any = inputs["blobs"]
    return {b["sha256"]: b["size"] for b in blobs}


def _artifacts(inputs: Inputs) -> set[str]:
    """Those whose blobs a record names: of a shard's weights one, of an archive several."""
    several: Any = inputs.get("artifacts")
    lost: Any = inputs.get("lost") or ()
    return {str(a) for a in (*several, *lost)} if several is not None else {str(inputs["artifact"])}


def _outputs(inputs: Inputs) -> Outputs:
    return {"artifact": inputs["artifact"]}
