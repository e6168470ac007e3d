"""R2 buckets. Natural key: the name within its jurisdiction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgespec.address import Address
from edgespec.providers.base import AlreadyExistsError, Observed, Progress, ProviderError
from edgespec.providers.cloudflare.account import Account, api_errors, error_codes, other_account, uncertain
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.provenance import sweep
from edgespec.state.model import ResourceRecord
from edgespec.values import Inputs, Outputs

_EXISTS = 10004
_NOT_EMPTY = 10008


class R2BucketProvider:
    def __init__(self, account: Account, live: Live) -> None:
        self._account = account
        self._live = live

    def read(self, record: ResourceRecord) -> Observed | None:
        with api_errors(record.address, "Listing buckets"):
            exists = record.inputs["name"] in self._live.buckets(str(record.inputs["jurisdiction"]))
        return Observed(record.inputs, _outputs(record.inputs)) if exists else None

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        with api_errors(address, "Listing buckets"):
            exists = inputs["name"] in self._live.buckets(str(inputs["jurisdiction"]))
        return Observed(inputs, _outputs(inputs)) if exists else None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        """A bucket has no place for a nonce. Its name was free a moment ago and is taken once an account, so after a
        lost answer the bucket of that name is the one that was asked for."""
        import cloudflare

        options: dict[str, Any] = {"name": inputs["name"], "cf_r2_jurisdiction": inputs["jurisdiction"]}
        if inputs["location"] is not None:
            options["location_hint"] = inputs["location"]
        with api_errors(address, "Creating the bucket"):
            try:
                self._account.once.r2.buckets.create(account_id=self._account.id, **options)
            except cloudflare.ConflictError as e:
                if _EXISTS in error_codes(e):
                    raise AlreadyExistsError(address, f"The bucket {inputs['name']}") from e
                raise
            except cloudflare.APIError as e:
                self._live.forget()
                if not uncertain(e) or inputs["name"] not in self._live.buckets(str(inputs["jurisdiction"])):
                    raise
        return _outputs(inputs)

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return _outputs(inputs)  # nothing of a bucket can be changed in place

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        import cloudflare

        name, jurisdiction = str(record.inputs["name"]), str(record.inputs["jurisdiction"])
        options: dict[str, Any] = {"cf_r2_jurisdiction": jurisdiction}
        with api_errors(record.address, "Deleting the bucket"):
            try:
                self._account.sdk.r2.buckets.delete(name, account_id=self._account.id, **options)
            except cloudflare.NotFoundError as e:
                if other_account(e):
                    raise
            except cloudflare.ConflictError as e:
                if _NOT_EMPTY not in error_codes(e):
                    raise
                if sweep(self._account, name, jurisdiction):
                    self._account.sdk.r2.buckets.delete(name, account_id=self._account.id, **options)
                    return
                page = self._account.s3(jurisdiction).list_objects_v2(Bucket=name, MaxKeys=5)
                keys = ", ".join(o["Key"] for o in page.get("Contents", [])) or "an unfinished multipart upload"
                detail = f"{name} holds objects that edgespec did not put there: {keys}. Remove them and run again."
                raise ProviderError(record.address, "The bucket is not empty", detail, nothing_done=True) from e


def _outputs(inputs: Inputs) -> Outputs:
    return {"name": inputs["name"], "jurisdiction": inputs["jurisdiction"]}
