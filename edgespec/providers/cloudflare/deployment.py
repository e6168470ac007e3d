"""Which version gets the traffic. Health and quality are measured at the version's preview address before it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.providers.base import Observed, Progress, ProviderError
from edgespec.providers.cloudflare.account import Account, Doing, api_errors, missing_is_fine, uncertain
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.workers_list import moment
from edgespec.state.model import ResourceRecord, Status
from edgespec.values import Inputs, Outputs

if TYPE_CHECKING:
    import httpx

Infer: TypeAlias = Callable[[Sequence[str]], list[dict[str, Any]]]


class Measured(Struct, frozen=True):
    """Metrics over a spec's quality data."""

    metrics: Mapping[str, float]
    teacher: Mapping[str, float] | None = None
    """Of the model before compression; None where no gate asks for it."""


Measure: TypeAlias = Callable[[str, Infer], Measured]
"""(spec name, infer) -> what there is to compare with the gate."""

WAIT_S: Final = 90.0
"""How long an address may take to answer: a new workers.dev name needs time to spread."""
_PAUSE_S: Final = 1.0
_CALL_S: Final = 60.0
_BATCH: Final = 8
"""Texts in one call while measuring: few enough for a request's CPU time on the paid plan."""


class DeploymentProvider:
    def __init__(self, account: Account, live: Live, measure: Measure) -> None:
        self._account = account
        self._live = live
        self._measure = measure

    def read(self, record: ResourceRecord) -> Observed | None:
        script = str(record.inputs["script"])
        with api_errors(record.address, "Reading the deployment"):
            there = script in self._live.scripts()
            versions = self._live.deployed(script) if there else None
            enabled = self._live.workers_dev(script) if there else None
        if versions is None or enabled is None:
            return None
        if record.status is Status.CREATING and not enabled:
            return None
        served = ",".join(f"{v}:{p:g}" for v, p in sorted(versions.items()))
        version = next(iter(versions)) if len(versions) == 1 else served
        inputs = {**record.inputs, "version": version, "workers_dev": enabled}
        when = self._live.deployed_on(script)
        outputs = record.outputs if when is None else {**record.outputs, "deployed_on": when}
        return Observed(inputs, outputs, complete=record.status is Status.READY)

    def find(self, address: Address, inputs: Inputs) -> Observed | None:
        return None  # a deployment belongs to its Worker, which is found by name

    def create(self, address: Address, inputs: Inputs, progress: Progress, nonce: str = "") -> Outputs:
        """Health first, then quality, then the traffic (kserve#5983)."""
        import httpx  # here, since every command loads this module and few ask a Worker

        script, version = str(inputs["script"]), str(inputs["version"])
        with httpx.Client(timeout=_CALL_S, trust_env=not self._account.endpoints.is_loopback) as http:
            with api_errors(address, "Reading the workers.dev subdomain"):
                preview = self._account.preview_url(script, version)
                url = self._account.worker_url(script)
            with api_errors(address, "Opening the preview addresses"):
                self._open_previews(script)
            progress("checking the new version's health", None)
            _wait_healthy(http, preview, address, progress)
            measured = self._gate(http, preview, address, inputs, progress)
            with api_errors(address, "Deploying") as call:
                when = self._deploy(script, version, call)
            progress("waiting until it answers", None)
            _wait_healthy(http, url, address, progress)
        outputs: Outputs = {"url": url, "metrics": dict(measured.metrics)}
        if when is not None:
            outputs = {**outputs, "deployed_on": when}
        return outputs if measured.teacher is None else {**outputs, "teacher": dict(measured.teacher)}

    def _open_previews(self, script: str) -> None:
        """A version is asked there before it gets traffic; somebody may have closed them."""
        state = self._account.get(f"/workers/scripts/{script}/subdomain")["result"]
        if not state.get("previews_enabled"):
            self._account.sdk.workers.scripts.subdomain.create(
                script, account_id=self._account.id, enabled=bool(state["enabled"]), previews_enabled=True
            )

    def _deploy(self, script: str, version: str, call: Doing) -> str | None:
        """When it was deployed, as far as the API says."""
        import cloudflare

        wanted = {version: 100.0}
        self._live.forget()
        if self._live.deployed(script) == wanted:
            when = self._live.deployed_on(script)
        else:
            try:
                made = self._account.once.workers.scripts.deployments.create(
                    script,
                    account_id=self._account.id,
                    strategy="percentage",
                    versions=[{"version_id": version, "percentage": 100}],
                )
                when = moment(made.created_on)
            except cloudflare.APIError as e:
                self._live.forget()
                if not uncertain(e) or self._live.deployed(script) != wanted:
                    raise
                when = self._live.deployed_on(script)
            call.begun = True
        if not self._live.workers_dev(script):
            self._account.sdk.workers.scripts.subdomain.create(
                script, account_id=self._account.id, enabled=True, previews_enabled=True
            )
        return when

    def _gate(self, http: httpx.Client, url: str, address: Address, inputs: Inputs, progress: Progress) -> Measured:
        """Measure and compare with the gates; a miss is an error and nothing was changed."""
        quality: Any = inputs["quality"]
        if quality is None:
            return Measured({})
        asked = 0

        def infer(texts: Sequence[str]) -> list[dict[str, Any]]:
            nonlocal asked
            answers: list[dict[str, Any]] = []
            for i in range(0, len(texts), _BATCH):
                answers += _infer(http, url, texts[i : i + _BATCH], address)
                asked += len(texts[i : i + _BATCH])
                progress(f"measuring quality through the Worker: {asked} texts", len(answers) / len(texts))
            return answers

        measured = self._measured(address, infer)
        missed = [
            why
            for name, gate in sorted(quality["metrics"].items())
            if (why := missed_gate(name, gate, measured)) is not None
        ]
        if missed:
            detail = (
                f"{'; '.join(missed)} (measured on {quality['data']} through the uploaded version). It got no traffic; "
                "what was deployed before goes on. Improve the model or its data, or ask for less."
            )
            raise ProviderError(address, "The quality gate failed", detail, nothing_done=True)
        return measured

    def _measured(self, address: Address, infer: Infer) -> Measured:
        """What cannot be measured, a teacher that cannot be built for instance, leaves the deployment as it was."""
        try:
            return self._measure(address.name, infer)
        except ProviderError:
            raise
        except EdgespecError as e:
            detail = "; ".join(d.detail or d.summary for d in e.diagnostics)
            raise ProviderError(address, "The quality gate cannot be measured", detail, nothing_done=True) from e

    def update(self, record: ResourceRecord, inputs: Inputs, progress: Progress) -> Outputs:
        return self.create(record.address, inputs, progress)

    def delete(self, record: ResourceRecord, others: Sequence[ResourceRecord]) -> None:
        """Close the public address; the versions are the Worker's."""
        script = str(record.inputs["script"])
        with api_errors(record.address, "Closing the address"), missing_is_fine():
            self._account.sdk.workers.scripts.subdomain.create(
                script, account_id=self._account.id, enabled=False, previews_enabled=True
            )


def missed_gate(name: str, gate: Mapping[str, float], measured: Measured) -> str | None:
    """Why a metric does not pass its gate; None when it does."""
    value = measured.metrics[name]
    teacher = measured.teacher.get(name) if measured.teacher is not None else None
    from edgespec.evaluation import floor_of

    floor = floor_of(gate, teacher)
    if value >= floor:
        return None
    if gate.get("min") == floor:
        return f"{name} is {value:.4f}, below the minimum {floor:g}"
    return (
        f"{name} is {value:.4f}; the teacher, which is the model before compression, has {teacher:.4f}: that is a drop "
        f"of {(teacher or 0) - value:.4f}, and {gate['max_drop']:g} is allowed"
    )


def _wait_healthy(http: httpx.Client, url: str, address: Address, progress: Progress) -> None:
    """Until `/healthz?load=1` answers 200: the version runs and its weights load."""
    import httpx

    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            answer = http.get(f"{url}healthz", params={"load": "1"})
            if answer.status_code == httpx.codes.OK:
                return
            last = f"HTTP {answer.status_code}: {answer.text[:300]}"
        except httpx.TransportError as e:
            last = f"{type(e).__name__}"
        if time.monotonic() > deadline:
            detail = f"{url}healthz did not answer well within {WAIT_S:.0f} s. Its last answer: {last}"
            raise ProviderError(address, "The new version is not healthy", detail)
        time.sleep(_PAUSE_S)
        progress("waiting for its health", None)


def _infer(http: httpx.Client, url: str, texts: Sequence[str], address: Address) -> list[dict[str, Any]]:
    import httpx

    try:
        answer = http.post(f"{url}infer", json={"texts": list(texts)})
    except httpx.TransportError as e:
        raise ProviderError(address, "Measuring failed", f"{url}infer: {type(e).__name__}.", nothing_done=True) from e
    if answer.status_code != httpx.codes.OK:
        detail = f"{url}infer answered HTTP {answer.status_code}: {answer.text[:300]}"
        raise ProviderError(address, "Measuring failed", detail, nothing_done=True)
    results: list[dict[str, Any]] = answer.json()["results"]
    return results
