"""What a platform team relies on, on the real local edge: drift, refresh-only, protection that outlives its spec,
import of what exists, renames."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from edgespec import adoption
from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.plan.imports import Import
from edgespec.plan.model import Action, Request
from edgespec.spec.models import EdgeModel
from tests.e2e.conftest import TinyProject


def actions(project: TinyProject, request: Request | None = None) -> dict[str, str]:
    planned = project.plan(request=request)
    return {str(c.key): c.action.value for c in planned.plan.changes if c.action is not Action.NOOP}


def run(project: TinyProject, *arguments: str) -> Result:
    from edgespec.cli.main import cli

    environ = {"EDGESPEC_CACHE_DIR": project.environ["EDGESPEC_CACHE_DIR"]}
    return CliRunner().invoke(cli, ["-C", str(project.root), *arguments], env=environ)


def close(project: TinyProject, name: str = "tiny") -> None:
    """Somebody closes the Worker's address by hand."""
    account = project.plan().account
    account.sdk.workers.scripts.subdomain.create(
        f"{project.name}-local-{name}", account_id=account.id, enabled=False, previews_enabled=True
    )
    account.close()


def test_drift_is_told_and_refresh_only_takes_it_into_state(project: TinyProject) -> None:
    project.apply_well()
    calm = run(project, "drift", "--json")
    assert (calm.exit_code, json.loads(calm.stdout)["drift"]) == (0, [])
    before = project.session().workspace.state_path.read_bytes()
    close(project)
    found = run(project, "drift", "--json")
    assert found.exit_code == 3
    (drift,) = json.loads(found.stdout)["drift"]
    assert (drift["address"], drift["kind"]) == ("deployment/tiny", "changed")
    assert [(f["path"], f["before"], f["after"]) for f in drift["fields"]] == [("workers_dev", True, False)]
    assert project.session().workspace.state_path.read_bytes() == before
    assert "workers_dev" in run(project, "drift").stdout
    planned = project.plan(request=Request(refresh_only=True))
    assert not planned.plan.steps and not planned.plan.is_empty
    project.apply_well(saved=planned.document)
    assert run(project, "drift").exit_code == 0
    assert actions(project) == {"deployment/tiny": "update"}  # the specs still ask for what they asked for
    live = project.plan().live
    assert live.workers_dev(f"{project.name}-local-tiny") is False  # nothing live was touched
    project.apply_well()
    assert actions(project) == {}
    assert project.infer("tiny", "hello")[0]["label"] == "other"


def test_deleting_the_spec_lifts_no_protection(project: TinyProject) -> None:
    project.write_spec(lifecycle={"prevent_destroy": True})
    project.apply_well()
    assert all(r.protected for r in project.state().records.values())
    (project.root / "specs" / "tiny.yaml").unlink()
    project.write_spec("second")
    planned = project.plan()
    assert {d.code for d in planned.refused} == {"ES220"}
    for options in ({}, {"allow_destroy": True}, {"destroy": True, "allow_destroy": True}):
        with pytest.raises(EdgespecError, match="prevent_destroy"):
            project.apply(**options)
    assert project.infer("tiny", "hello")[0]["label"] == "other"
    refused = run(project, "apply", "--auto-approve")
    assert refused.exit_code == 1 and "ES220" in str(refused.exception)
    project.write_spec(lifecycle={"prevent_destroy": False})
    project.apply_well()
    (project.root / "specs" / "tiny.yaml").unlink()
    with pytest.raises(EdgespecError, match="ES222"):  # four of ten
        project.apply()
    project.apply_well(allow_destroy=True)
    assert actions(project) == {}


def test_a_renamed_spec_keeps_its_weights(project: TinyProject) -> None:
    project.apply_well()
    (project.root / "specs" / "tiny.yaml").unlink()
    project.write_spec("small", lifecycle={"renamed_from": "tiny"})
    assert actions(project) == {
        "model/small": "move",
        "weights/small/default": "move",
        "worker/small": "replace",
        "deployment/small": "replace",
    }
    project.apply_well()
    assert actions(project) == {}
    assert project.infer("small", "hello")[0]["label"] == "other"
    assert {k.address.name for k in project.state().records if k.address.type == "worker"} == {"small"}


def take(project: TinyProject, *addresses: str) -> Sequence[Import]:
    return adoption.import_addresses(project.session(), [Address.parse(a) for a in addresses], lambda _: True)


def test_what_exists_is_imported_with_its_differences(project: TinyProject) -> None:
    project.apply_well()
    whole = project.state()
    project.session().workspace.state_path.unlink()
    with pytest.raises(EdgespecError, match="No spec asks for worker/tinny"):
        take(project, "worker/tinny")
    close(project)
    bucket = f"r2_bucket/{project.name}-local-auto"
    shown: list[Import] = []
    refused = adoption.import_addresses(
        project.session(), [Address.parse(bucket)], lambda found: bool(shown.extend(found))
    )
    assert not refused and len(shown) == 1
    assert project.plan().stored.records == {}  # without consent, nothing
    take(project, bucket)
    with pytest.raises(EdgespecError, match="is in state already"):
        take(project, bucket)
    found = adoption.import_described(project.session(), lambda _: True)
    different = {str(i.record.address): [f.path for f in i.fields] for i in found if i.fields}
    assert different == {"deployment/tiny": ["workers_dev"]}
    assert {k: r.outputs for k, r in project.state().records.items() if k.address.type == "worker"} == {
        k: r.outputs for k, r in whole.records.items() if k.address.type == "worker"
    }
    assert actions(project) == {"deployment/tiny": "update"}
    project.apply_well()
    assert actions(project) == {}


def test_specs_are_written_for_what_is_deployed(project: TinyProject) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["regions"] = {
            "default": "world",
            "shards": {"world": {"location": "wnam"}, "eu": {"jurisdiction": "eu", "match": {"continents": ["EU"]}}},
        }
        document["cache"] = {"weights": {"kv": {"ttl": "2d", "pin": ["tokenizer"]}}}

    project.write_spec("lost", edit)
    project.apply_well()
    account = project.plan().account
    module = (
        "index.mjs",
        b"export default { fetch() { return new Response('mine') } }",
        "application/javascript+module",
    )
    account.sdk.workers.scripts.update(
        f"{project.name}-local-foreign", account_id=account.id, metadata={"main_module": "index.mjs"}, files=[module]
    )
    original = yaml.safe_load((project.root / "specs" / "lost.yaml").read_text())
    (project.root / "specs" / "lost.yaml").unlink()
    project.session().workspace.state_path.unlink()
    listed = run(project, "import", "--all", "--yes")
    assert listed.exit_code == 0, listed.output
    assert "worker/lost  (not in state)" in listed.stdout
    assert "worker/foreign  (not in state; it has no config.json: edgespec did not make it)" in listed.stdout
    assert not (project.root / "specs" / "imported" / "foreign.yaml").exists()
    account.sdk.workers.scripts.delete(f"{project.name}-local-foreign", account_id=account.id)
    account.close()
    path = project.root / "specs" / "imported" / "lost.yaml"
    written = yaml.safe_load(path.read_text())
    assert written["task"]["labels"] == original["task"]["labels"]
    assert written["regions"] == original["regions"]
    assert written["cache"]["weights"]["kv"] == {"ttl": 172800, "cache_ttl": 3600, "pin": ["tokenizer"]}
    # where the weights come from is in the artifact's statement
    assert EdgeModel.model_validate(written).model == EdgeModel.model_validate(original).model
    assert "provenance statement says" in path.read_text()
    kept = path.read_text()
    again = run(project, "import", "--all", "--yes")
    assert "Kept as it is: specs/imported/lost.yaml" in again.stdout and path.read_text() == kept
    path.rename(project.root / "specs" / "lost.yaml")
    assert run(project, "import", "--all", "--yes").exit_code == 0
    assert actions(project) == {}  # what was written means what was deployed
    assert project.infer("lost", "hello")[0]["label"] == "other"


def test_without_a_statement_a_person_says_where_the_weights_came_from(project: TinyProject) -> None:
    project.write_spec("lost")
    project.apply_well()
    spec = project.root / "specs" / "lost.yaml"
    original = yaml.safe_load(spec.read_text())
    spec.unlink()
    bucket = f"{project.name}-local-auto"
    account = project.plan().account
    s3 = account.s3("default")
    for found in s3.list_objects_v2(Bucket=bucket, Prefix="provenance/")["Contents"]:
        s3.put_object(Bucket=bucket, Key=found["Key"], Body=b"not one of ours")
    account.close()
    assert run(project, "import", "--all", "--yes").exit_code == 0
    path = project.root / "specs" / "imported" / "lost.yaml"
    written = yaml.safe_load(path.read_text())
    assert written["model"] == {"source": "fill-in"} and "since the artifact has no" in path.read_text()
    spec.write_text(yaml.safe_dump({**written, "model": original["model"]}, sort_keys=False))
    assert run(project, "import", "--all", "--yes").exit_code == 0
    assert actions(project) == {}


def test_a_namespace_with_keys_of_somebody_else_is_not_deleted(project: TinyProject) -> None:
    project.apply_well()
    account = project.plan().account
    namespace = str(
        next(r for k, r in project.state().records.items() if k.address.type == "kv_namespace").outputs["id"]
    )
    account.sdk.kv.namespaces.values.update("mine", account_id=account.id, namespace_id=namespace, value=b"keep me")
    planned = project.plan(destroy=True)
    (held,) = (h for k, h in planned.plan.contents.items() if k.address.type == "kv_namespace")
    assert held.foreign == 1 and held.objects > 1  # the Worker has cached chunks there
    with pytest.raises(EdgespecError, match="holds 1 keys"):
        project.apply(destroy=True)
    assert project.infer("tiny", "hello")[0]["label"] == "other"  # before any side effect
    account.sdk.kv.namespaces.values.delete("mine", account_id=account.id, namespace_id=namespace)
    account.close()
