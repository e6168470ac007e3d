"""Versions of a Worker. Natural key: the script's name, and on each version a tag that is the digest of its inputs, by
which an upload whose answer was lost is found again instead of being made twice."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any, Final

from edgespec.address import Address
from edgespec.assets import Bundles, Module, module_bytes
from edgespec.providers.base import AlreadyExistsError, Observed, Progress
from edgespec.providers.cloudflare.account import Account, api_errors
from edgespec.providers.cloudflare.live import Live
from edgespec.resources import worker
from edgespec.state.model import ResourceRecord, Status
from edgespec.values import Inputs, Outputs, canonical_json, digest

CONFIG: Final = "config.json"


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
            if script not in self._live.scripts():
                return None
            version = record.outputs.get("version_id")
            if version is not None and (version in self._live.deployed(script) or self._exists(script, str(version))):
                return Observed(record.inputs, record.outputs, complete=record.status is Status.READY)
            found = self._by_tag(script, record.inputs)
        if found is None:
            return Observed(record.inputs, {"script": script}, complete=False)
        return Observed(record.inputs, _outputs(script, found), complete=record.status is Status.READY)

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        script = str(inputs["script"])
        with api_errors(address, "Listing Workers"):
            return Observed({"script": script}, {"script": script}) if script in self._live.scripts() else None

    def create(self, address: Address, inputs: Inputs, progress: Progress) -> Outputs:
        script = str(inputs["script"])
        with api_errors(address, "Uploading the Worker"):
            self._live.forget()
            if script in self._live.scripts():
                raise AlreadyExistsError(address, f"A Worker named {script}")
            return self._create(script, inputs, progress)

    def _create(self, script: str, inputs: Inputs, progress: Progress) -> Outputs:
        """The first upload of a script deploys it, so its public address is closed at once: the deployment opens it
        after the version has shown itself healthy at its preview address."""
        progress("uploading", None)
        metadata: Any = {**self._metadata(inputs), "tags": ["edgespec", self._owner]}
        self._account.once.workers.scripts.update(
            script, account_id=self._account.id, metadata=metadata, files=self._files(inputs)
        )
        self._account.sdk.workers.scripts.subdomain.create(
            script, account_id=self._account.id, enabled=False, previews_enabled=True
        )
        version = self._by_tag(script, inputs)
        return _outputs(script, version) if version else {"script": script}

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        script = str(inputs["script"])
        with api_errors(record.address, "Uploading a version of the Worker"):
            self._live.forget()
            if script not in self._live.scripts():
                return self._create(script, inputs, progress)
            version = self._by_tag(script, inputs)
            if version is None:
                progress("uploading", None)
                metadata: Any = self._metadata(inputs)
                # Parsing this answer raises in SDK 5.7 to 5.9 although the call has succeeded; only its id is needed.
                answer = self._account.once.workers.scripts.versions.with_raw_response.create(
                    script, account_id=self._account.id, metadata=metadata, files=self._files(inputs)
                )
                body: Any = json.loads(answer.text())
                version = str(body["result"]["id"])
            self._open_previews(script)
        return _outputs(script, version)

    def _open_previews(self, script: str) -> None:
        state = self._account.get(f"/workers/scripts/{script}/subdomain")["result"]
        if not state.get("previews_enabled"):
            self._account.sdk.workers.scripts.subdomain.create(
                script, account_id=self._account.id, enabled=bool(state["enabled"]), previews_enabled=True
            )

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        import cloudflare

        script = str(record.inputs["script"])
        if any(o.inputs["script"] == script for o in others):
            return  # an adopted or renamed record: the script itself is still wanted
        with api_errors(record.address, "Deleting the Worker"), contextlib.suppress(cloudflare.NotFoundError):
            self._account.sdk.workers.scripts.delete(script, account_id=self._account.id, force=True)

    def _exists(self, script: str, version: str) -> bool:
        import cloudflare

        try:
            self._account.get(f"/workers/scripts/{script}/versions/{version}")
        except cloudflare.NotFoundError:
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


def version_tag(inputs: Inputs) -> str:
    """At most 25 characters, as the annotation takes."""
    return f"es-{digest(inputs)[:20]}"


def _binding(binding: dict[str, Any]) -> dict[str, Any]:
    """`jurisdiction: default` is what the API understands by leaving it out."""
    return {k: v for k, v in binding.items() if not (k == "jurisdiction" and v == "default")}


def _outputs(script: str, version: str) -> Outputs:
    return {"script": script, "version_id": version}
