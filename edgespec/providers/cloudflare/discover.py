"""What an account holds under a project's names and tags, whatever state and specs say."""

from __future__ import annotations

import json
from typing import Any, Final

from edgespec.address import Address
from edgespec.attestation import BUILD_TYPE, about
from edgespec.plan.imports import Deployed
from edgespec.providers.cloudflare.account import Account, api_errors
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.provenance import fetched
from edgespec.providers.cloudflare.worker import CONFIG, owner_tag, owners_of
from edgespec.resources import kv_namespace
from edgespec.resources.reconstruct import built_from, served, spec_of

JURISDICTIONS: Final = ("default", "eu", "us", "fedramp")


def discover(account: Account, live: Live, project: str, environment: str) -> tuple[Deployed, ...]:
    """Buckets and the namespace by name, Workers by name and ownership tag."""
    prefix, title = f"{project}-{environment}-", kv_namespace.title(project, environment)
    with api_errors(Address("r2_bucket", prefix + "*"), "Listing buckets"):
        names = sorted({n for j in JURISDICTIONS for n in live.buckets(j) if _is_bucket(n, prefix)})
    found = [Deployed(Address("r2_bucket", name)) for name in names]
    with api_errors(Address("kv_namespace", title), "Listing KV namespaces"):
        ids = [i for i, t in live.namespaces().items() if t == title]
        pinned = live.pinned(ids[0]) or frozenset() if ids else frozenset()
    found += [Deployed(Address("kv_namespace", title)) for _ in ids]
    owner = owner_tag(project, environment)
    with api_errors(Address("worker", prefix + "*"), "Listing Workers"):
        scripts = account.get("/workers/scripts")["result"]
    for script in sorted(scripts, key=lambda s: str(s["id"])):
        tags = script.get("tags") or []
        anothers = owners_of(tags) and owner not in tags  # shop's names in `eu` begin like those of shop-eu
        if owner in tags or (str(script["id"]).startswith(prefix) and not anothers):
            found.append(_worker(account, str(script["id"]), prefix, pinned, tagged=owner in tags))
    return tuple(found)


def _is_bucket(name: str, prefix: str) -> bool:
    """PROJECT-ENVIRONMENT-PLACEMENT: shop-eu's buckets begin like those of shop in `eu`, and have a word more."""
    return name.startswith(prefix) and "-" not in name.removeprefix(prefix)


def _worker(account: Account, script: str, prefix: str, pinned: frozenset[str], *, tagged: bool) -> Deployed:
    address = Address("worker", script.removeprefix(prefix))
    note = "" if tagged else "it carries no ownership tag of this project"
    with api_errors(address, "Reading the Worker"):
        config = _config(account, script)
        settings = account.get(f"/workers/scripts/{script}/settings")["result"]
    if config is None:
        return Deployed(address, f"it has no {CONFIG}: edgespec did not make it")
    bindings = {str(b["name"]): b for b in settings.get("bindings") or []}
    try:
        built = _built(account, address, config, bindings)
        return Deployed(address, note, spec_of(config, bindings, prefix, pinned, built))
    except (KeyError, TypeError, ValueError) as e:
        return Deployed(address, f"its configuration cannot be read ({e})")


def _built(
    account: Account, address: Address, config: dict[str, Any], bindings: dict[str, dict[str, Any]]
) -> dict[str, Any] | None:
    """What the artifact was built from, by the statement beside it; None without one that says so. Whether somebody
    signed it does not matter here: what it says becomes a file that a person reads, and whose build must give the
    artifact that is deployed."""
    artifact, name = served(config)
    if (binding := bindings.get(name)) is None:
        return None
    with api_errors(address, "Reading its artifact's provenance"):
        raw = fetched(account, binding["bucket_name"], binding.get("jurisdiction") or "default", artifact)
    envelope = about(raw, artifact)
    if envelope is None:
        return None
    build = envelope.statement.predicate.buildDefinition
    return built_from(build.externalParameters) if build.buildType == BUILD_TYPE else None


def _config(account: Account, script: str) -> dict[str, Any] | None:
    """The module `config.json` of the deployed version; None when there is none."""
    answer = account.sdk.workers.scripts.content.with_raw_response.get(script, account_id=account.id)
    head = f"Content-Type: {answer.headers.get('content-type', '')}\r\n\r\n".encode()
    import email.parser
    import email.policy

    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + answer.read())
    for part in message.iter_parts() if message.is_multipart() else ():
        if CONFIG in (part.get_filename(), part.get_param("name", header="content-disposition")):
            payload = part.get_payload(decode=True)
            config = json.loads(payload) if isinstance(payload, bytes) else None
            return config if isinstance(config, dict) else None
    return None
