"""Models: nothing remote, only a build whose result state remembers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from edgespec.address import Address
from edgespec.artifact import Manifest
from edgespec.build.cache import Cache
from edgespec.build.events import BuildEvent
from edgespec.build.pipeline import Pipeline
from edgespec.build.remote import RemoteCache
from edgespec.diagnostics import EdgespecError, error
from edgespec.providers.base import Observed, Progress
from edgespec.resources import model
from edgespec.spec.models import EdgeModel
from edgespec.state.model import ResourceRecord, Status
from edgespec.values import Inputs, Outputs


class Artifacts(Protocol):
    """Artifacts that are found rather than built. Both raise EdgespecError where they are nowhere."""

    def manifest(self, artifact: str, name: str) -> Manifest:
        """By its digest; `name` is the spec's, for messages."""
        ...

    def path(self, sha256: str, name: str, size: int) -> Path:
        """A file with a blob's verified bytes, of at most `size`."""
        ...

    def statement(self, artifact: str) -> bytes | None:
        """The envelope with its provenance, out of a bucket; None where there is none."""
        ...


class ModelProvider:
    """`specs` by name; builds go to `cache`, and to and from `remote` where machines share one. What `pinned` names is
    never built: `artifacts` has it."""

    def __init__(
        self,
        root: Path,
        cache: Cache,
        specs: Mapping[str, EdgeModel],
        remote: RemoteCache | None = None,
        *,
        artifacts: Artifacts | None = None,
        pinned: Collection[str] = frozenset(),
        attested: Callable[[str, str], object] = lambda name, artifact: None,
    ) -> None:
        """`attested` hears of each artifact that was built, by its spec's name."""
        self._attested = attested
        self._artifacts = artifacts
        self._pinned = pinned
        self._root = root
        self._cache = cache
        self._specs = specs
        self._remote = remote
        self.building = threading.Lock()
        """Held by whoever builds: a build may take most of a machine, and steps run side by side."""

    def read(self, record: ResourceRecord) -> Observed | None:
        if record.status is Status.CREATING:
            return None
        return Observed(record.inputs, record.outputs, complete=record.status is Status.READY)

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return None

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        def tell(event: BuildEvent) -> None:
            progress(f"{event.stage}: {event.message}", event.fraction)

        if self._artifacts is not None and model.is_pinned(inputs):
            return model.outputs(self._artifacts.manifest(str(inputs["artifact"]), address.name))
        pipeline, spec = Pipeline(self._root, self._cache, tell, self._remote), self._specs[address.name]
        with self.building:
            manifest = pipeline.build(spec)
        self._attested(address.name, manifest.digest)
        # A package's digest is known only once the build has fetched it (see the applier).
        return {**model.outputs(manifest), "source_digest": pipeline.facts(spec).inputs["source_digest"]}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return self.create(record.address, inputs, progress)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        """The cache is not the environment's: a build that another may use stays."""

    def blobs(self, name: str, artifact: str) -> Callable[[str], Path]:
        """Where an artifact's blobs are; builds it again when this machine's cache does not have it, and is allowed
        to."""
        if self._artifacts is not None and name in self._pinned:
            return self._found(self._artifacts, name, artifact)
        pipeline = Pipeline(self._root, self._cache, lambda _: None, self._remote)
        spec = self._specs.get(name)
        if pipeline.blob(artifact) is None and spec is not None:
            with self.building:
                manifest = pipeline.build(spec)
            if manifest.digest != artifact:
                detail = (
                    f"The artifact {artifact[:12]} is not in this machine's cache, and building {name} again gives "
                    f"{manifest.digest[:12]}: its inputs or tools differ from those it was built with. Run plan again."
                )
                raise EdgespecError(
                    error("ES534", "The artifact cannot be made again", detail, address=f"model/{name}")
                )

        def path_of(sha256: str) -> Path:
            found = pipeline.blob(sha256)
            if found is None:
                detail = f"The cache has lost {sha256[:12]}. Run apply again to rebuild it."
                raise EdgespecError(error("ES535", "A chunk is missing", detail, address=f"model/{name}"))
            return found

        return path_of

    @staticmethod
    def _found(artifacts: Artifacts, name: str, artifact: str) -> Callable[[str], Path]:
        manifest = artifacts.manifest(artifact, name)
        sizes = {c.sha256: c.size for c in manifest.chunks} | {artifact: len(manifest.encode())}

        def path_of(sha256: str) -> Path:
            return artifacts.path(sha256, name, sizes[sha256])

        return path_of
