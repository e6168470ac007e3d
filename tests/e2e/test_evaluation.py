"""Quality against the teacher, and words that are shown: on the real local edge."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from click.testing import CliRunner

from edgespec.assets import schema_error
from edgespec.build.data import read_examples
from edgespec.build.evaluation.compare import Evaluator
from edgespec.build.pipeline import Pipeline
from edgespec.cli.main import cli
from edgespec.plan.model import Action
from tests.e2e.conftest import TinyProject
from tests.tiny import WORDS

INT4 = {"method": "int4", "group_size": 128}


def where_int4_differs(project: TinyProject) -> list[dict[str, str]]:
    """Examples that the float32 model gets right and its int4 version does not, and as many that both get right."""
    from edgespec.benchmark.answers import local_answering

    rng = random.Random(5)
    texts = sorted({" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) for _ in range(600)})
    project.write_spec(quantization=INT4)
    session = project.session()
    spec, cache = session.specs["tiny"], session.cache
    evaluator = Evaluator(
        project.root, cache, lambda p: Pipeline(project.root, cache, p), local_answering(), lambda _: None
    )
    found: dict[str, list[str]] = {}
    for name, asked in (("teacher", operations_teacher(spec)), ("deployed", spec)):
        rows = "".join(json.dumps({"text": t, "label": "other"}) + "\n" for t in texts)
        (project.root / "data" / "pool.jsonl").write_text(rows)
        data = evaluator.data("data/pool.jsonl")
        examples = read_examples(data.read(), "data/pool.jsonl", spec.task).unwrap()
        found[name] = [a["label"] for a in evaluator.measure(asked, data, examples, name).answers]
    same, other = [], []
    for text, teacher, deployed in zip(texts, found["teacher"], found["deployed"], strict=True):
        (same if teacher == deployed else other).append({"text": text, "label": teacher})
    assert len(other) >= 3, "int4 changes nothing here; choose other texts"
    return [*other[:10], *same[: len(other[:10])]]


def operations_teacher(spec: Any) -> Any:
    from edgespec.build.evaluation.variants import teacher_of

    return teacher_of(spec)


def test_a_drop_from_the_teacher_that_is_not_allowed_refuses_the_deployment(project: TinyProject) -> None:
    rows = where_int4_differs(project)
    (project.root / "data" / "test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    gate: dict[str, Any] = {"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.1, "max_drop": 0.2}}}
    project.write_spec(quantization=INT4, quality=gate)
    result = project.apply().result
    assert result is not None
    (message,) = [f"{d.summary}: {d.detail}" for d in result.diagnostics if "quality" in d.summary]
    assert "accuracy is 0.5000" in message
    assert "has 1.0000: that is a drop of 0.5000, and 0.2 is allowed" in message
    gate["metrics"]["accuracy"]["max_drop"] = 0.6
    project.write_spec(quantization=INT4, quality=gate)
    project.apply_well()
    record = next(r for k, r in project.state().records.items() if k.address.type == "deployment")
    outputs: Any = record.outputs
    assert outputs["metrics"]["accuracy"] == 0.5
    assert outputs["teacher"]["accuracy"] == 1.0


def test_display_text_changes_the_worker_alone(project: TinyProject) -> None:
    project.apply_well()

    def show(document: dict[str, Any]) -> None:
        document["task"]["display"] = {"refund": "Refund request"}

    project.write_spec(edit=show)
    planned = project.plan()
    changes = {str(c.key): c.action.value for c in planned.plan.changes if c.action is not Action.NOOP}
    assert changes == {"worker/tiny": "update", "deployment/tiny": "update"}
    (build,) = planned.plan.builds.values()
    assert all(stage.cached for stage in build.stages)
    assert planned.plan.steps
    project.apply_well()
    [refund, delivery] = project.infer("tiny", "refund my money please", "where is my parcel")
    assert (refund["label"], refund["display"]) == ("refund", "Refund request")
    assert (delivery["label"], delivery["display"]) == ("delivery", "delivery")
    planned = project.plan()
    assert not [c for c in planned.plan.changes if c.action is not Action.NOOP]


def run(project: TinyProject, *arguments: str, code: int = 0) -> str:
    ran = CliRunner().invoke(cli, ["-C", str(project.root), *arguments], env=project.environ, catch_exceptions=False)
    assert ran.exit_code == code, ran.output
    return ran.stdout


def test_workerd_confirms_what_node_has_measured(project: TinyProject) -> None:
    project.write_spec(quality={"data": "data/test.jsonl", "metrics": {"accuracy": {"max_drop": 0.5}}})
    fast = json.loads(run(project, "eval", "tiny", "--json"))
    real = json.loads(run(project, "eval", "tiny", "--json", "--edge", "--alone"))
    assert schema_error("evaluation", real) is None
    assert real["variants"][0]["computed_by"].startswith("workerd ")
    ours, theirs = fast["variants"][-1], real["variants"][-1]
    assert "in Node" in ours["computed_by"]
    assert {k: v for k, v in theirs.items() if k != "computed_by"} == {
        k: v for k, v in ours.items() if k != "computed_by"
    }


def test_keywords_are_measured_in_workerd(project: TinyProject) -> None:
    rows = [{"text": "the parcel arrived broken and late", "keywords": ["parcel"]}]
    (project.root / "data" / "words.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))

    def keywords(document: dict[str, Any]) -> None:
        document["model"] = {"source": "./models/tiny"}
        document["task"] = {"type": "keyword-extraction", "max_tokens": 32, "top_k": 5, "max_words": 1}
        document["quantization"] = {"method": "none"}

    project.write_spec(edit=keywords)
    found = json.loads(run(project, "eval", "tiny", "--data", "data/words.jsonl", "--json"))
    (variant,) = found["variants"]
    assert variant["computed_by"].startswith("workerd ")
    assert variant["metrics"]["recall"] == 1.0
    assert variant["metrics"]["precision"] < 1


def test_a_missed_gate_is_an_exit_code(project: TinyProject) -> None:
    rows = "".join(json.dumps({"text": t, "label": "refund"}) + "\n" for t in ("where is my parcel", "hello shop"))
    (project.root / "data" / "test.jsonl").write_text(rows)
    project.write_spec(quality={"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.9}}})
    assert "missed: accuracy is 0.0000; the gate asks for 0.9000" in run(project, "eval", "tiny", code=4)
    assert "gate" not in run(project, "eval", "tiny", "--data", "data/train.jsonl")


@pytest.mark.parametrize("suffix", ["html", "md"])
def test_a_report_is_written(project: TinyProject, suffix: str) -> None:
    project.write_spec(quality={"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.5}}})
    path = project.root / "out" / f"report.{suffix}"
    assert run(project, "report", "tiny", "--out", str(path)).strip() == str(path)
    text = path.read_text()
    assert "accuracy" in text
    if suffix == "md":
        assert sorted(p.name for p in path.parent.glob("*.svg")) == [
            "report-confusion.svg",
            "report-lengths.svg",
            "report-reliability.svg",
        ]
