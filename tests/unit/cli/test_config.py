from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from edgespec import assets
from edgespec.diagnostics import EdgespecError
from edgespec.spec.document import Source
from edgespec.spec.effective import effective
from edgespec.spec.load import load_project, load_specs
from edgespec.workspace import Workspace, load_workspace
from tests.cases.spec_cases import FOLDER, PROJECT
from tests.unit.cli.conftest import Run

EXAMPLES = Path(__file__).parents[3] / "specs"


def _workspaces() -> list[Workspace]:
    """Of every example, and of every case that is valid, in each of their environments."""
    found = []
    for root in sorted([*EXAMPLES.glob("*/edgespec.yaml"), *FOLDER.glob("*/edgespec.yaml")]):
        try:
            first = load_workspace(root.parent, None, {}, any_environment=True)
            found += [load_workspace(root.parent, e, {}, any_environment=True) for e in first.project.environments]
        except EdgespecError:
            assert root.is_relative_to(FOLDER)
    return found


WORKSPACES = _workspaces()


@pytest.mark.parametrize("workspace", WORKSPACES, ids=lambda w: f"{w.root.name}-{w.environment}")
def test_read_again_it_is_the_same_spec(workspace: Workspace) -> None:
    assert workspace.specs
    for spec in workspace.specs:
        made = effective(spec, workspace.nodes[spec.name], workspace.project)
        (again,) = load_specs([Source("effective.yaml", made.text)], workspace.project).unwrap()
        assert again.spec == spec
        assert yaml.safe_load(made.text).keys() == made.data.keys()
        assert len(made.origins) == len(made.rows)


def test_options_of_other_methods_are_left_out() -> None:
    project = load_project(Source("edgespec.yaml", PROJECT), {}, None).unwrap()
    text = (
        "apiVersion: edgespec/v1\nkind: EdgeModel\nmetadata: {name: a, labels: {note: '~', odd: 'x: #y', no: NO}}\n"
        "model:\n  source: ./m\n  pipeline:\n    - distill: {method: static, dimensions: 64}\n"
        "    - prune: {layers: [0], vocabulary: {corpus: d.jsonl, keep: 10}}\n    - head: {train: t.jsonl}\n"
        "task: {type: text-classification, labels: [a, b]}\ncache: {weights: {tiers: []}}\n"
        "quality: {data: t.jsonl, metrics: {accuracy: {min: 0.5}}}\n"
        "tune: {quantization: [int8, {method: int4, group_size: 64}], layers: [2, [0, 1]]}\n"
    )
    (loaded,) = load_specs([Source("a.yaml", text)], project.project).unwrap()
    made = effective(loaded.spec, loaded.node, project.project)
    (again,) = load_specs([Source("effective.yaml", made.text)], project.project).unwrap()
    assert again.spec == loaded.spec
    assert "group_size" not in made.origins and "cache.weights.memory" not in made.origins
    assert made.data["tune"]["quantization"][1]["group_size"] == 64
    assert 'note: "~"' in made.text and 'odd: "x: #y"' in made.text and "no: NO" in made.text


OVERLAID = """environments:
  local: {target: {type: local}}
  staging:
    target: {type: cloudflare, account: "${NO_SUCH_ACCOUNT}"}
    overrides:
      "*": {cache: {weights: {memory: 32MiB, kv: {ttl: null}}}}
      alpha:
        quantization: null
"""


def test_config_show(run: Run, project: Path) -> None:
    head = "apiVersion: edgespec/v1\nkind: Project\nname: shop\n"
    (project / "edgespec.yaml").write_text(head + OVERLAID)
    spec = (project / "specs" / "alpha.yaml").read_text()
    (project / "specs" / "alpha.yaml").write_text(
        f"{spec}cache: {{weights: {{kv: {{ttl: 2d}}}}}}\nquantization: {{}}\n"
    )
    plain = run("config", "show", "alpha", "--origin").out.split("\n")
    assert "    memory: 64MiB                         # default" in plain
    assert "      ttl: 2d                             # specs/alpha.yaml:6" in plain
    refused = run("config", "show", "alpha", "--env", "staging", "--origin")
    assert refused.code == 1 and "ES121" in refused.err
    (project / "edgespec.yaml").write_text((head + OVERLAID).replace("${NO_SUCH_ACCOUNT}", "0" * 32))
    ran = run("config", "show", "alpha", "--env", "staging", "--origin")
    rows = [" ".join(row.split()) for row in ran.out.split("\n")]
    assert (ran.code, ran.err) == (0, "")
    assert "memory: 32MiB # edgespec.yaml:9" in rows
    assert "ttl: 7d # default, by edgespec.yaml:9" in rows
    assert "quantization: # default, by edgespec.yaml:11" in rows
    assert "cache: # specs/alpha.yaml:6" in rows and "engine: auto # default" in rows
    document = json.loads(run("config", "show", "alpha", "-e", "staging", "--json").out)
    Draft202012Validator(assets.schema("config")).validate(document)
    assert document["environment"] == "staging"
    assert document["spec"]["cache"]["weights"]["memory"] == 32 << 20
    assert document["origins"]["cache.weights.memory"] == "edgespec.yaml:9"
    unknown = run("config", "show", "alhpa")
    assert unknown.code == 1 and "ES139" in unknown.err and "`alpha`" in unknown.err
