"""What an artifact depends on, and the keys that its steps' results are kept under because of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from edgespec.build.problems import fail
from edgespec.build.stages.stage import Step
from edgespec.build.steps import pipeline_inputs
from edgespec.spec.models import EdgeModel
from edgespec.values import UNKNOWN, Value, digest

_VERSION: Final = re.compile(r"^Version: (\S+)$", re.MULTILINE)


def inputs_of(
    spec: EdgeModel, steps: tuple[Step, ...], source_digest: Value, engine: Value, tools: dict[str, Value]
) -> Mapping[str, Value]:
    """Everything that the artifact depends on, as a person reads it in a plan."""
    return {
        "source": spec.model.source,
        "source_digest": source_digest,
        "pipeline": pipeline_inputs(steps),
        "task": spec.task.model_dump(mode="json"),
        "quantization": _quantization(spec),
        "engine": engine,
        "chunk": spec.cache.weights.kv.chunk,
        "tools": tools,
    }


def _quantization(spec: EdgeModel) -> str:
    """`int8`, or `int4/32` with its group, or `gptq/4/128`."""
    quantization = spec.quantization
    parts: list[str] = [quantization.method]
    if quantization.by_tool:
        parts.append(str(quantization.width))
    if quantization.grouped:
        parts.append(str(quantization.group_size))
    return "/".join(parts)


def keys_of(steps: tuple[Step, ...], inputs: Mapping[str, Value]) -> dict[str, str]:
    """What each step's result is kept under."""
    keys: dict[str, str] = {}
    for step in steps:
        keys[step.name] = step.key(inputs, keys)
    return keys


def whole_key(steps: tuple[Step, ...], inputs: Mapping[str, Value]) -> str:
    """Of all that the artifact depends on: two builds with one key give one artifact."""
    versions: dict[str, Value] = {s.name: s.stage.version for s in steps}
    return digest({"inputs": dict(inputs), "stages": versions})


def tools_of(steps: tuple[Step, ...]) -> dict[str, Value]:
    """The packages that the steps compute with, and their versions here; raises ES531 where one of the core is gone."""
    return {name: _version(name) for name in sorted({t for s in steps for t in s.tools})}


@cache
def _version(package: str) -> Value:
    """UNKNOWN for a package that only a build needs and that is not here; raises ES531 for one of the core."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(package)
        written = _VERSION.search(found.read_text("METADATA") or "")  # `version` parses it all, as a mail
        return written[1] if written else found.version
    except PackageNotFoundError:
        if package not in ("numpy", "onnx", "onnxruntime", "tokenizers"):
            return UNKNOWN
        raise fail("ES531", f"{package} is not installed. Run `pip install {package}`.") from None
