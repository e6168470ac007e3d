"""Versions of a Worker. Natural key: the script's name, and on each version a tag that is the digest of its inputs, by
which an upload whose answer was lost is found again instead of being made twice. The script's own tags say whose it is
and hold the nonce of the create that made it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from edgespec.address import Address
from edgespec.assets import Bundles, Module, module_bytes
from edgespec.providers.base import AlreadyExistsError, AnothersError, Observed, Progress
from edgespec.providers.cloudflare.account import Account, api_errors, missing_is_fine, not_found, uncertain
from edgespec.providers.cloudflare.live import Live
from edgespec.resources import worker
from edgespec.state.model import ResourceRecord, Status
from edgespec.values import Inputs, Outputs, canonical_json, digest

CONFIG: Final = "config.json"
OWNER: Final = "edgespec:"
"""What an owner's tag begins with."""


class WorkerProvider:
    def __init__(self, account: Account, live: Live, bundles: Bundles, owner: str) -> None:
        """`owner` tags the script: which project and environment it belongs to."""
        self._account = account
        self._live = live
        self._bundles = bundles
        self._owner = owner

    def read(self, record: ResourceRecord) -> Observed | None:
        script = str(record.inputs["script"])
        with api_errors(record.address, "Reading the Worker"):
            tags = self._live.scripts().get(script)
            if tags is None or (record.status is Status.CREATING and not self._ours(tags, record.nonce)):
                return None
            version = record.outputs.get("version_id")
            if version is not None and self._is_there(script, str(version)):
                return Observed(record.inputs, record.outputs, complete=record.status is Status.READY)
            found = self._by_tag(script, record.inputs)
        if found is None:
            return Observed(record.inputs, {"script": script}, complete=False)
        return Observed(record.inputs, _outputs(script, found), complete=record.status is Status.READY)

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        script = str(inputs["script"])
        with api_errors(address, "Listing Workers"):
            tags = self._live.scripts().get(script)
        if tags is None:
            return None
        self._check_owner(address, script, tags)
        return Observed({"script": script}, {"script": script})

    def _check_owner(self, address: Address, script: str, tags: frozenset[str]) -> None:
        """Raise when another project or environment made it: shop's `prod-a` in `eu` is shop-eu's `a` in `prod`."""
        others = owners_of(tags) - {self._owner.removeprefix(OWNER)}
        if others and self._owner not in tags:
            raise AnothersError(address, f"The Worker {script}", ", ".join(sorted(others)))

    def _ours(self, tags: frozenset[str], nonce: str) -> bool:
        """What an interrupted create of ours may have left, or a Worker of this environment that it met."""
        return self._owner in tags or (bool(nonce) and nonce_tag(nonce) in tags)

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        script = str(inputs["script"])
        with api_errors(address, "Uploading the Worker") as call:
            self._live.forget()
            if (there := self._live.scripts().get(script)) is not None:
                self._check_owner(address, script, there)
                raise AlreadyExistsError(address, f"A Worker named {script}")
            self._put(script, inputs, progress, nonce)
            call.begun = True
            return self._close(script, inputs)

    def _put(self, script: str, inputs: Inputs, progress: Progress, nonce: str) -> None:
        """The first upload of a script. When its answer is lost, the nonce tells whether it was made."""
        import cloudflare

        progress("uploading", None)
        tags = ["edgespec", self._owner, *([nonce_tag(nonce)] if nonce else [])]
        metadata: Any = {**self._metadata(inputs), "tags": tags}
        try:
            self._account.once.workers.scripts.update(
                script, account_id=self._account.id, metadata=metadata, files=self._files(inputs)
            )
        except cloudflare.APIError as e:
            self._live.forget()
            if not (nonce and uncertain(e) and nonce_tag(nonce) in self._live.scripts().get(script, ())):
                raise

    def _close(self, script: str, inputs: Inputs) -> Outputs:
        """A first upload is deployed at once: its public address is closed until the deployment, which opens it after
        the version has shown itself healthy at its preview address."""
        self._account.sdk.workers.scripts.subdomain.create(
            script, account_id=self._account.id, enabled=False, previews_enabled=True
        )
        version = self._by_tag(script, inputs)
        return _outputs(script, version) if version else {"script": script}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        script = str(inputs["script"])
        with api_errors(record.address, "Uploading a version of the Worker") as call:
            self._live.forget()
            if script not in self._live.scripts():
                self._put(script, inputs, progress, record.nonce)
                call.begun = True
                return self._close(script, inputs)
            version = self._by_tag(script, inputs)
            if version is None:
                progress("uploading", None)
                version = self._add(script, inputs)
        return _outputs(script, version)

    def _add(self, script: str, inputs: Inputs) -> str:
        """Another version. When the answer is lost, its tag tells whether it was made."""
        import cloudflare

        metadata: Any = self._metadata(inputs)
        try:
            # Parsing this answer raises in SDK 5.7 to 5.9 although the call has succeeded; only its id is needed.
            answer = self._account.once.workers.scripts.versions.with_raw_response.create(
                script, account_id=self._account.id, metadata=metadata, files=self._files(inputs)
            )
        except cloudflare.APIError as e:
            version = self._by_tag(script, inputs) if uncertain(e) else None
            if version is None:
                raise
            return version
        body: Any = json.loads(answer.text())
        return str(body["result"]["id"])

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        script = str(record.inputs["script"])
        if any(o.inputs["script"] == script for o in others):
            return  # an adopted or renamed record: the script itself is still wanted
        with api_errors(record.address, "Deleting the Worker"), missing_is_fine():
            self._account.sdk.workers.scripts.delete(script, account_id=self._account.id, force=True)

    def _is_there(self, script: str, version: str) -> bool:
        if version in (self._live.deployed(script) or ()):
            return True
        try:
            self._account.get(f"/workers/scripts/{script}/versions/{version}")
        except Exception as e:
            if not not_found(e):
                raise
            return False
        return True

    def _by_tag(self, script: str, inputs: Inputs) -> str | None:
        """The newest version made of exactly these inputs."""
        wanted = version_tag(inputs)
        page = 1
        while True:
            body = self._account.get(f"/workers/scripts/{script}/versions", {"page": page, "per_page": 100})
            items = body["result"]["items"]
            for item in items:
                if (item.get("annotations") or {}).get("workers/tag") == wanted:
                    return str(item["id"])
            if len(items) < 100:
                return None
            page += 1

    def _metadata(self, inputs: Inputs) -> dict[str, Any]:
        bindings: Any = inputs["bindings"]
        return {
            "main_module": self._modules(inputs)[0].name,
            "compatibility_date": inputs["compatibility_date"],
            "compatibility_flags": inputs["compatibility_flags"],
            "bindings": [{"name": name, **_binding(b)} for name, b in sorted(bindings.items())],
            "annotations": {
                "workers/message": f"edgespec artifact {str(inputs['artifact'])[:12]}",
                "workers/tag": version_tag(inputs),
            },
        }

    def _modules(self, inputs: Inputs) -> tuple[Module, ...]:
        return self._bundles.by_engine[str(inputs["engine"])]

    def _files(self, inputs: Inputs) -> list[Any]:
        files: list[Any] = [
            (m.name, module_bytes(m), m.content_type) for m in self._bundles.by_engine[str(inputs["engine"])]
        ]
        files.append((CONFIG, canonical_json(worker.module(inputs)).encode(), "text/plain"))
        return files


def owner_tag(project: str, environment: str) -> str:
    """The tag of a script that says whose it is."""
    return f"{OWNER}{project}/{environment}"


def owners_of(tags: Iterable[str]) -> set[str]:
    """PROJECT/ENVIRONMENT of those that say that a script is theirs."""
    return {t.removeprefix(OWNER) for t in tags if t.startswith(OWNER)}


def version_tag(inputs: Inputs) -> str:
    """At most 25 characters, as the annotation takes."""
    return f"es-{digest(inputs)[:20]}"


def nonce_tag(nonce: str) -> str:
    """The tag of a script that says which create made it."""
    return f"edgespec-nonce:{nonce}"


def _binding(binding: dict[str, Any]) -> dict[str, Any]:
    """`jurisdiction: default` is what the API understands by leaving it out."""
    return {k: v for k, v in binding.items() if not (k == "jurisdiction" and v == "default")}


def _outputs(script: str, version: str) -> Outputs:
    return {"script": script, "version_id": version}
