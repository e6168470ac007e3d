"""The provider protocol: what the applier and the refresh ask of a resource type's I/O half."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, TypeAlias

from msgspec import Struct

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError, error
from edgespec.state.model import ResourceRecord
from edgespec.values import Inputs, Outputs

Progress: TypeAlias = Callable[[str, float | None], None]
"""A message for people, and how much is done (0 to 1) where that is known. Raises `StoppedError` when the run was told
to stop: a provider calls it wherever it can be given up, and lets it through."""


class Observed(Struct, frozen=True):
    """The live object in the resource's own terms. `complete` is False when an interrupted call may have left parts
    undone that cannot be seen: the planner then asks for an update."""

    inputs: Inputs
    outputs: Outputs
    complete: bool = True


class ProviderError(EdgespecError):
    """A call that failed. `nothing_done` says that the object is certainly as it was before."""

    code: ClassVar[str] = "ES401"

    def __init__(self, address: Address, summary: str, detail: str, *, nothing_done: bool = False) -> None:
        super().__init__(error(self.code, summary, detail, address=str(address)))
        self.nothing_done = nothing_done


class AlreadyExistsError(ProviderError):
    """An object of that name exists and edgespec did not make it."""

    def __init__(self, address: Address, what: str) -> None:
        detail = f"{what} exists and is not in this state. Plan again, then `apply --adopt` to take it over, or rename."
        super().__init__(address, "Already exists", detail, nothing_done=True)


class AnothersError(ProviderError):
    """An object of that name is deployed by another project or environment: it is never taken over."""

    code = "ES415"

    def __init__(self, address: Address, what: str, owner: str) -> None:
        detail = (
            f"{what} belongs to {owner}, which deploys to the same account and gives it the same name. "
            "Rename this spec or this project."
        )
        super().__init__(address, "Another project's", detail, nothing_done=True)


class WrongAccountError(ProviderError):
    """The API does not let this token into this account: nothing can be said about what exists there. It is neither
    "not found" nor "empty" (workers-sdk#12044)."""

    code = "ES414"

    def __init__(self, address: Address, summary: str, said: str, *, nothing_done: bool = False) -> None:
        detail = (
            f"The API says: {said}. Either `account` of this environment is another's, or CLOUDFLARE_API_TOKEN is of "
            "another account. Nothing was taken to be missing."
        )
        super().__init__(address, summary, detail, nothing_done=nothing_done)


class StoppedError(ProviderError):
    """The run was told to stop, and this call was given up at a moment at which it can be: the next apply goes on."""

    code = "ES309"

    def __init__(self, address: Address, *, nothing_done: bool = False) -> None:
        detail = "The run was told to stop. Run apply again: it goes on from here."
        super().__init__(address, "Stopped", detail, nothing_done=nothing_done)


class Provider(Protocol):
    def read(self, record: ResourceRecord) -> Observed | None:
        """The live object, by its id or, where a crash left none, by its natural key; None when it does not exist."""

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        """An object that carries this resource's natural key although state has no record of it."""

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        """Make the object; raises `AlreadyExistsError` rather than taking over another's.

        `nonce` was drawn for this create and is in state by now. It goes onto the object where the API has a place for
        it; the record that `read` gets has it too."""

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        """Bring the object to `inputs` from whatever an interrupted call left. Idempotent."""

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        """Succeeds if the object is already gone. What `others` (same type, or one that may name the
        same objects) still name is kept."""
