"""Why a training tool died, in words: what happened, why, and what to do."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgespec.build.problems import fail

TAIL: Final = 6
"""Lines of the log that an error shows."""
_LESS_MEMORY: Final = "Lower `batch_size` or `max_tokens`, train an adapter (`method: lora`, or `qlora`), or take a {}."


@dataclass(frozen=True, slots=True)
class Cause:
    pattern: str
    """Of the tool's words."""
    code: str
    advice: str


_CAUSES: Final = (
    Cause(
        r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        "ES553",
        "the GPU has not enough memory. " + _LESS_MEMORY.format("larger GPU"),
    ),
    Cause(
        r"can't allocate memory|cannot allocate memory|std::bad_alloc|^MemoryError|not enough memory",
        "ES553",
        "this machine has not enough memory. " + _LESS_MEMORY.format("larger machine"),
    ),
    Cause(
        r"No space left on device",
        "ES553",
        "the disk for temporary files is full. Free some of it, or set TMPDIR to another one.",
    ),
    Cause(
        r"AF_UNIX path too long",
        "ES550",
        "the folder for temporary files has too long a path for the sockets that it makes there. Set TMPDIR to a "
        "shorter one, /tmp for instance.",
    ),
    Cause(
        r"Torch not compiled with CUDA|No CUDA GPUs are available|requires? (?:a )?(?:GPU|CUDA)|Found no NVIDIA driver"
        r"|CUDA is (?:not available|required)|no kernel image is available",
        "ES552",
        "it asks for a GPU that this machine does not have. Run the build on a machine with one, or take another "
        "method.",
    ),
    Cause(
        r"Failed to automatically match `model_type`|model_type: .* not in|no suitable `model_type`"
        r"|does not recognize this architecture|Unrecognized (?:model|configuration class)",
        "ES551",
        "it does not know this kind of model. Take one whose config.json has a model_type of docs/build.md.",
    ),
    Cause(
        r"remaining_argv|unrecognized arguments|invalid choice|error: argument",
        "ES550",
        "it does not know an argument that edgespec gave it: another version is installed than the 4.6 that edgespec "
        "is written for. Run `pip install 'edgespec[build]'`.",
    ),
    Cause(
        r"LocalEntryNotFoundError|outgoing traffic has been disabled|Cannot reach|OfflineModeIsEnabled",
        "ES551",
        "it looked for a file on a hub, and edgespec lets it use no network: the model's folder is incomplete. Put the "
        "missing file beside the model's others.",
    ),
    Cause(
        r"size mismatch for|ignore_mismatched_sizes|Error\(s\) in loading state_dict|safetensors_rust"
        r"|SafetensorError|HeaderTooLarge",
        "ES551",
        "the weights do not fit config.json, or are damaged. Fetch the model again.",
    ),
    Cause(
        r"DatasetGenerationError|StopIteration|No valid data|dataset.*(?:empty|num_rows: 0)|Target \d+ is out of bounds"
        r"|index out of range in self",
        "ES556",
        "it cannot use the examples, though edgespec found no fault in them. Token ids beyond the embedding table (a "
        "tokenizer of another model) or examples without any token look like this.",
    ),
    Cause(
        r"ModuleNotFoundError|ImportError|PackageNotFoundError",
        "ES531",
        "a package that it needs is missing. Run `pip install 'edgespec[build]'`.",
    ),
)


def failed(code: int, lines: Sequence[str], log: Path, tool: str = "ms-swift", otherwise: str = "ES550") -> Exception:
    """The error for a tool that ended with this exit code, after these lines (progress bars left out)."""
    shown = [line.rstrip()[:300] for line in lines if line.strip()][-TAIL:]
    said = "".join(f"\n  {line}" for line in shown) or "\n  (nothing)"
    where = f"\nIts output is in {log}; it ends with:{said}"
    if name := _signal_name(code):
        why = (
            f"{tool} was killed by {name}. On Linux that is most often the kernel short of memory: "
            + _LESS_MEMORY.format("larger machine")
            if name == "SIGKILL"
            else f"{tool} was ended by {name}."
        )
        return fail("ES555", why + where)
    text = "\n".join(lines)
    for cause in _CAUSES:
        if re.search(cause.pattern, text, re.IGNORECASE | re.MULTILINE):
            return fail(cause.code, f"{tool} ended with exit code {code}: {cause.advice}{where}")
    return fail(otherwise, f"{tool} ended with exit code {code}. Its last words may tell why.{where}")


def _signal_name(code: int) -> str | None:
    """A signal that ended the tool, or a process of its own, as a shell (128 + n) or Python (256 - n) passes it on."""
    number = -code if code < 0 else code - 128 if 128 < code < 160 else 256 - code if code > 224 else 0
    try:
        return signal.Signals(number).name if number else None
    except ValueError:
        return None
