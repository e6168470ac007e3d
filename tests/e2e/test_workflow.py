"""The whole workflow on the real local edge: a language model is made on the spot, fine-tuned by QLoRA, merged, its
matrices made 4-bit integers by GPTQ, compiled for the edge with those integers, uploaded, and asked."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import TinyProject

pytest.importorskip("swift", reason="needs ms-swift (scripts/setup --dev installs it)")
pytest.importorskip("gptqmodel", reason="needs gptqmodel (scripts/setup --dev installs it)")
EXAMPLE = Path(__file__).parents[2] / "specs" / "qlora"


class Workflow(TinyProject):
    def __init__(self, root: Path, cache: Path, edge: Path) -> None:
        super().__init__(root, cache, "qlora", edge)
        for part in ("specs", "data"):
            shutil.rmtree(root / part, ignore_errors=True)
            shutil.copytree(EXAMPLE / part, root / part)
        document = yaml.safe_load((EXAMPLE / "edgespec.yaml").read_text())
        document["environments"]["local"]["target"]["port"] = 0
        (root / "edgespec.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        shutil.copy(EXAMPLE / "make_model.py", root)
        runpy.run_path(str(root / "make_model.py"), run_name="__main__")


@pytest.mark.filterwarnings("ignore")  # of torch's and transformers' own, in this process
def test_from_a_language_model_to_answers(tmp_path: Path, build_cache: Path, shared_edge: Path) -> None:
    project = Workflow(tmp_path / "project", build_cache, shared_edge)
    try:
        project.apply_well()  # its gate, 90 % of the test commands through the Worker, is passed or this fails
        planned = project.plan()
        assert planned.plan.is_empty
        manifest = next(b for b in planned.plan.builds.values()).manifest
        assert manifest is not None
        assert manifest.engine == "edge"
        assert manifest.model.quantization == "gptq"
        assert [
            a["label"]
            for a in project.infer("home-commands", "switch off the lamp in the hall", "play some jazz in the office")
        ] == [
            "lights",
            "music",
        ]
    finally:
        project.apply(destroy=True)
