"""`validate --sarif`: a log that code scanning takes, each problem on its line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

from tests.unit.cli.conftest import SPEC, Run

# From the npm package @microsoft/jest-sarif 1.0.0-beta.0 (MIT).
SCHEMA = json.loads((Path(__file__).parents[1] / "render" / "sarif-2.1.0.schema.json").read_text())


def log_of(run: Run, folder: Path, *options: str, code: int) -> dict[str, Any]:
    path = folder / "found.sarif"
    assert run("validate", "--sarif", path, *options).code == code
    log = json.loads(path.read_text())
    jsonschema.Draft7Validator(SCHEMA).validate(log)
    (only,) = log["runs"]
    found: dict[str, Any] = only
    return found


def region(result: dict[str, Any]) -> tuple[str, int, int | None, int | None]:
    (location,) = result["locations"]
    where = location["physicalLocation"]
    assert where["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
    place = where["region"]
    return where["artifactLocation"]["uri"], place["startLine"], place.get("startColumn"), place.get("endColumn")


def test_nothing_found_is_a_log_too(run: Run, tmp_path: Path) -> None:
    found = log_of(run, tmp_path, code=0)
    assert found["results"] == [] and found["tool"]["driver"]["rules"] == []


def test_every_problem_on_its_place(run: Run, project: Path) -> None:
    (project / "specs" / "alpha.yaml").write_text(SPEC.replace("embedding", "embeding"))
    (project / "specs" / "b c.yaml").write_text(SPEC.replace("alpha", "beta") + "modle: {}\n")
    results = log_of(run, project, code=1)["results"]
    assert sorted((r["ruleId"], r["level"], *region(r)) for r in results) == [
        ("ES110", "error", "specs/b%20c.yaml", 6, 1, 6),
        ("ES112", "error", "specs/alpha.yaml", 5, 14, 22),
    ]
    assert len({r["partialFingerprints"]["edgespec/v1"] for r in results}) == 2


def test_characters_are_counted_not_bytes(run: Run, project: Path) -> None:
    spec = SPEC.replace("{name: alpha}", "{name: alpha, labels: {pet: '🦊é'}, nme: x}")
    (project / "specs" / "alpha.yaml").write_text(spec)
    (result,) = log_of(run, project, code=1)["results"]
    begin = spec.split("\n")[2].index("nme:") + 1
    assert region(result) == ("specs/alpha.yaml", 3, begin, begin + 3)


def test_warnings_and_codes(run: Run, project: Path) -> None:
    (project / "specs" / "alpha.yaml").write_text(SPEC + "worker: {plan: free}\n")
    found = log_of(run, project, code=0)
    (result,) = found["results"]
    (rule,) = found["tool"]["driver"]["rules"]
    assert (rule["id"], rule["defaultConfiguration"]["level"]) == ("ES155", "warning")
    assert (result["ruleId"], result["level"], result["ruleIndex"]) == ("ES155", "warning", 0)


def test_a_project_below_the_repositorys_root(run: Run, project: Path, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (project / "specs" / "alpha.yaml").write_text(SPEC.replace("embedding", "embeding"))
    found = log_of(run, project, code=1)
    assert region(found["results"][0])[0] == "project/specs/alpha.yaml"
    assert found["automationDetails"]["id"] == "edgespec/validate/project/"


def test_what_has_no_place_is_shown_at_the_projects_file(run: Run, project: Path) -> None:
    (project / "specs" / "alpha.yaml").unlink()
    (project / "specs" / "alpha.yaml").mkdir()
    found = log_of(run, project, code=1)
    assert region(found["results"][0]) == ("edgespec.yaml", 1, None, None)


def test_beside_json(run: Run, project: Path, tmp_path: Path) -> None:
    (project / "specs" / "alpha.yaml").write_text(SPEC.replace("embedding", "embeding"))
    path = tmp_path / "found.sarif"
    ran = run("validate", "--json", "--sarif", path)
    assert ran.code == 1 and not json.loads(ran.out)["valid"] and path.is_file()


def test_a_file_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    ran = run("validate", "--sarif", tmp_path / "missing" / "found.sarif")
    assert ran.code == 1 and "[ES740]" in ran.err
