"""Workers KV namespaces. Natural key: the title."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.address import Address
from edgespec.providers.base import AlreadyExistsError, Observed, Progress
from edgespec.providers.cloudflare.account import Account, api_errors, error_codes, missing_is_fine, uncertain
from edgespec.providers.cloudflare.live import Live
from edgespec.state.model import ResourceRecord
from edgespec.values import Inputs, Outputs

_TITLE_EXISTS = 10014


class KvNamespaceProvider:
    def __init__(self, account: Account, live: Live) -> None:
        self._account = account
        self._live = live

    def read(self, record: ResourceRecord) -> Observed | None:
        with api_errors(record.address, "Listing KV namespaces"):
            namespaces = self._live.namespaces()
        id_ = record.outputs.get("id")
        if id_ is None:  # an interrupted create: the title tells
            return self._by_title(record.inputs)
        title = namespaces.get(str(id_))
        return None if title is None else Observed({**record.inputs, "title": title}, {"id": id_})

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        with api_errors(address, "Listing KV namespaces"):
            return self._by_title(inputs)

    def _by_title(self, inputs: Inputs) -> Observed | None:
        ids = [i for i, title in self._live.namespaces().items() if title == inputs["title"]]
        return Observed(inputs, {"id": ids[0]}) if ids else None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        """A namespace has no place for a nonce. The title was free a moment ago and is taken once an account, so after
        a lost answer the namespace of that title is the one that was asked for."""
        import cloudflare

        title = str(inputs["title"])
        with api_errors(address, "Creating the KV namespace"):
            try:
                made = self._account.once.kv.namespaces.create(account_id=self._account.id, title=title)
            except (cloudflare.BadRequestError, cloudflare.ConflictError) as e:
                if _TITLE_EXISTS in error_codes(e):
                    raise AlreadyExistsError(address, f"A KV namespace titled {title}") from e
                raise
            except cloudflare.APIError as e:
                self._live.forget()
                if not uncertain(e) or (found := self._by_title(inputs)) is None:
                    raise
                return found.outputs
        assert made is not None  # noqa: S101  # the SDK types every result as optional
        return {"id": made.id}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        with api_errors(record.address, "Renaming the KV namespace"):
            id_ = str(record.outputs["id"])
            self._account.sdk.kv.namespaces.update(id_, account_id=self._account.id, title=str(inputs["title"]))
        return {"id": id_}

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        with api_errors(record.address, "Deleting the KV namespace"), missing_is_fine():
            self._account.sdk.kv.namespaces.delete(str(record.outputs["id"]), account_id=self._account.id)
