"""A tool's checkpoint made fit for the cache and for later stages: the same bytes for the same weights, and a
config.json that says what edgespec knows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from edgespec.build.problems import fail

VARIES: Final = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "swift_version")
"""Keys of config.json that say who wrote it, not what it is. Weights carry their own types."""
KEPT: Final = ("tokenizer.json", "tokenizer_config.json", "modules.json", "1_Pooling/config.json")
"""Files that training does not change: taken from the model that came in, byte by byte."""


def tidy_checkpoint(made: Path, files: Mapping[str, bytes], config: Mapping[str, Any]) -> Path:
    """Rewrites the checkpoint in `made` under this config.json and with these of KEPT, the tool's own left out; gives
    `made`."""
    (made / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    for name in KEPT:
        target = made / name
        if name in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files[name])
        else:
            target.unlink(missing_ok=True)
    rewrite_weights(made)
    return made


def rewrite_weights(folder: Path) -> None:
    """One model.safetensors with its tensors by name and no notes, instead of however many a tool wrote."""
    from edgespec.build.weights_file import join_safetensors

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise fail("ES558", "the tool wrote no *.safetensors.")
    joined = join_safetensors([f.read_bytes() for f in files])
    for file in files:
        file.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    (folder / "model.safetensors").write_bytes(joined)


def read_json(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise fail("ES558", f"{path.name} of the tool's checkpoint is no object.")
    return found


def plain_config(made: Path) -> dict[str, Any]:
    """The tool's config.json without what differs between machines and says nothing of the model."""
    return {k: v for k, v in read_json(made / "config.json").items() if k not in VARIES}


def classifier_config(made: Path, labels: Sequence[str], *, multi_label: bool) -> dict[str, Any]:
    """The tool's config.json with the task's labels in the task's order: the tool knows numbers only."""
    config = plain_config(made)
    config["architectures"] = [_classifier_name(config)]
    config["id2label"] = {str(i): label for i, label in enumerate(labels)}
    config["label2id"] = {label: i for i, label in enumerate(labels)}
    config["problem_type"] = f"{'multi' if multi_label else 'single'}_label_classification"
    config.pop("num_labels", None)
    return config


def _classifier_name(config: Mapping[str, Any]) -> str:
    name = str((config.get("architectures") or ["Model"])[0])
    return re.sub(r"(For[A-Z][A-Za-z]*|Model)$", "", name) + "ForSequenceClassification"
