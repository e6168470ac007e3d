"""Runs ms-swift (https://github.com/modelscope/ms-swift, 4.6): a process of its own under a generated argument file.

The tool has no network and sends no telemetry, leaves nothing outside of the workspace that it is given, and on a CPU
runs on one thread under fixed seeds, so that the same inputs give the same bytes. On a machine with a GPU it takes the
GPU; its kernels are then not the same bit for bit between runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from edgespec.build.problems import fail
from edgespec.build.process import run_tool
from edgespec.build.stages.stage import Job
from edgespec.build.swift_failures import failed
from edgespec.build.swift_progress import Reader

Argument: TypeAlias = str | int | float | bool | Sequence[str]
Arguments: TypeAlias = Mapping[str, Argument]
TRAINING: Final = r"^Train"
"""What the bar of training steps is called."""
TOOLS: Final = ("ms-swift", "peft", "torch", "transformers")
"""Packages whose version may change what comes out of a training."""
GPTQ_BLOCKS: Final = Path(__file__).parent / "plugins" / "gptq_blocks.py"
BNB_HEADS: Final = Path(__file__).parent / "plugins" / "bnb_heads.py"
"""`--external_plugins`: what of ms-swift 4.6 needs repair; each says what."""
_PASSED_BY: Final = (
    "WANDB_", "SWIFT_", "MODELSCOPE_", "HF_", "TRANSFORMERS_", "ACCELERATE_", "RAY_SWIFT", "FSDP_", "COMET_", "MLFLOW_",
    "GPTQMODEL_",
)  # fmt: skip
"""Beginnings of variables that would change what the tool does; the spec says that."""


def require(*modules: str, package: str) -> None:
    """Raises ES531 when one of a tool's modules is not installed. Imports nothing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise fail("ES531", f"{package} is not installed. Run `pip install 'edgespec[build]'`.")


def has_gpu() -> bool:
    """Whether torch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def environment(home: Path, *, gpu: bool) -> dict[str, str]:
    """What a tool finds in its environment: no hub, no telemetry, its caches and temporary files in `home`."""
    (home / "tmp").mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_PASSED_BY)}
    for name in ("NPROC_PER_NODE", "NNODES", "PYTORCH_CUDA_ALLOC_CONF") if not gpu else ():
        kept.pop(name, None)
    kept |= {
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "USE_HF": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "WANDB_MODE": "disabled",
        "HF_HOME": str(home / "huggingface"), "MODELSCOPE_CACHE": str(home / "modelscope"),
        "TRITON_CACHE_DIR": str(home / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
        "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home / "tmp"), "TOKENIZERS_PARALLELISM": "false",
        "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "ignore",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # gptqmodel does not start on two cores without the first, and compiles C++ for a minute without the second.
        "GPTQMODEL_CPU_WORKERS": "2", "GPTQMODEL_DISABLE_PACK_EXT": "1",
    }  # fmt: skip
    if not gpu:
        one = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        kept |= dict.fromkeys(one, "1") | {"CUDA_VISIBLE_DEVICES": ""}
    return kept


def device_arguments(*, gpu: bool) -> dict[str, Argument]:
    """Where and in what numbers a training computes. Weights are float32 everywhere."""
    if gpu:
        return {"bf16": _has_bf16(), "fp16": False, "torch_dtype": "float32"}
    return {"use_cpu": True, "bf16": False, "fp16": False, "torch_dtype": "float32"}


def _has_bf16() -> bool:
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported())


COMMON: Final[Arguments] = {
    # What the run leaves: one checkpoint, at the end, without the optimiser's state.
    "add_version": False, "save_only_model": True, "save_strategy": "steps", "save_steps": 1_000_000_000,
    "create_checkpoint_symlink": False, "report_to": "none", "check_model": False,
    # Rows that are too long are cut: the tool would leave them out.
    "truncation_strategy": "right", "split_dataset_ratio": 0, "dataloader_num_workers": 0, "dataset_num_proc": 1,
    "gradient_accumulation_steps": 1, "logging_steps": 5, "logging_nan_inf_filter": False, "lazy_tokenize": False,
}  # fmt: skip
"""Arguments of every training."""


def write_arguments(path: Path, arguments: Arguments) -> Path:
    """The argument file. YAML, of which JSON is a part: nothing in it is read as something else."""
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in sorted(arguments.items())]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def run_swift(
    job: Job,
    command: Literal["sft", "rlhf", "export"],
    arguments: Arguments,
    folder: Path,
    *,
    gpu: bool,
    bars: str = TRAINING,
    span: tuple[float, float] = (0.0, 1.0),
    otherwise: str = "ES550",
) -> Reader:
    """Runs one command of ms-swift in `folder` and gives what it measured.

    Progress goes to `job.say` between the fractions of `span`, by the bars whose name matches `bars`. Raises ES55x, or
    `otherwise` for a failure that says nothing known.
    """
    require("swift", package="ms-swift")
    file = write_arguments(folder / f"{command}.yaml", arguments)
    line = [sys.executable, "-m", "swift.cli.main", command, str(file)]
    return run_logged(job, line, folder, "ms-swift", gpu=gpu, bars=bars, span=span, otherwise=otherwise)


def run_logged(
    job: Job,
    command: Sequence[str],
    folder: Path,
    tool: str,
    *,
    gpu: bool,
    bars: str,
    span: tuple[float, float] = (0.0, 1.0),
    otherwise: str = "ES550",
) -> Reader:
    """Runs a tool with its output in the job's log; raises what its failure means, `otherwise` when that is unknown."""
    log = job.log_path()
    with log.open("a", encoding="utf-8") as sink:
        sink.write(f"$ {' '.join(command)}\n")
        for file in (Path(c) for c in command if c.endswith(".yaml")):
            sink.write(file.read_text(encoding="utf-8"))
    reader = Reader(job.say, bars=bars, span=span)
    code = run_tool(command, folder=folder, environment=environment(folder, gpu=gpu), log=log, on_line=reader.line)
    if code != 0:
        raise failed(code, [_without_paths(text, folder) for text in reader.lines], log, tool, otherwise)
    return reader


def _without_paths(text: str, folder: Path) -> str:
    """A line for people: the workspace is gone when they read it."""
    return text.replace(f"{folder}/", "")


def start_log(job: Job) -> None:
    """Forgets what an earlier run of the step wrote."""
    job.log_path().write_bytes(b"")


def last_checkpoint(output: Path) -> Path:
    """Where a training left its model. Raises ES558 when it ended well but wrote none."""
    found = [p for p in output.glob("checkpoint-*") if p.is_dir() and p.name.rpartition("-")[2].isdigit()]
    if not found:
        raise fail("ES558", f"ms-swift ended without an error and without a checkpoint in {output.name}.")
    return max(found, key=lambda p: int(p.name.rpartition("-")[2]))
