"""torch made repeatable: one thread, fixed seeds, no kernel that adds up in another order every time."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from edgespec.build.problems import fail

if TYPE_CHECKING:
    import torch


def need(*modules: str) -> None:
    """Raises EdgespecError (ES531) for a package that is not installed. Imports nothing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise fail("ES531", f"{module} is not installed. Run `pip install 'edgespec[build]'`.")


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Puts everything back afterwards: the process may have other work for torch."""
    import torch

    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = False  # slow, and nothing here reads such memory
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            memory.fill_uninitialized_memory = filled
            torch.use_deterministic_algorithms(strict, warn_only=warn)


def device() -> torch.device:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def processors() -> int:
    """That this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
