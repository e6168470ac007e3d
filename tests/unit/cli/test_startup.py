"""What a command imports: `--help` and a plan without changes must not wait for libraries that they do not use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "torch",
    "transformers",
    "onnx",
    "onnxruntime",
    "numpy",
    "tokenizers",
    "safetensors",
    "cloudflare",
    "boto3",
    "botocore",
)
SCRIPT = """
import json, sys
sys.argv = ["edgespec", *sys.argv[1:]]
from edgespec.cli.main import main
try:
    main()
except SystemExit as e:
    print(json.dumps([e.code or 0, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    code, modules = json.loads(ran.stderr.splitlines()[-1])
    assert code == 0
    return set(modules)


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_the_first_screen(arguments: tuple[str, ...]) -> None:
    assert not imported(*arguments) & {*HEAVY, "httpx", "pydantic", "yaml", "rich", "jsonschema"}


@pytest.mark.parametrize("command", ["validate", "plan", "apply", "state"])
def test_the_help_of_a_command(command: str) -> None:
    assert not imported(command, "--help") & set(HEAVY)


def test_cel_only_where_there_are_policies(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "a.yaml").write_text(
        "apiVersion: edgespec/v1\nkind: EdgeModel\nmetadata: {name: a}\n"
        "model: {source: package:edgespec-no-such-model}\ntask: {type: embedding}\n"
    )
    project = "apiVersion: edgespec/v1\nkind: Project\nname: shop\n"
    for policies, wanted in (("", False), ("policies: [{name: a, when: plan.delete > 0, warn: A.}]\n", True)):
        (tmp_path / "edgespec.yaml").write_text(project + policies)
        found = imported("-C", str(tmp_path), "validate")
        assert ("cel_expr_python.cel" in found) is wanted and not found & {"cloudflare", "boto3", "torch"}
