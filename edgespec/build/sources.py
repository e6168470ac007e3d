"""Where a model's files are: a Python package, a hub, a folder in Hugging Face layout, or an ONNX file with its
tokenizer."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from edgespec.build.cache import Cache, InputFile, touch
from edgespec.build.events import BuildEvent, Progress
from edgespec.build.hub import download, find_hub, parse_hub
from edgespec.build.problems import fail
from edgespec.values import digest

FORMS: Final = (
    "`package:NAME`, `package:NAME==VERSION`, `hf:ORG/NAME@REVISION`, `ms:ORG/NAME@REVISION`, `./directory` in "
    "Hugging Face layout, or `./model.onnx`"
)
_PACKAGE: Final = re.compile(r"package:([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==([A-Za-z0-9.!+_-]+))?")
_TOKENIZER_ADVICE: Final = (
    "Write it with transformers: `AutoTokenizer.from_pretrained(DIR, use_fast=True).save_pretrained(DIR)`."
)


class ModelFiles(Struct, frozen=True):
    """The files of a model that a build reads, and no others."""

    weights: tuple[InputFile, ...]
    """One ONNX file, or safetensors."""
    tokenizer: InputFile
    config: InputFile | None = None
    tokenizer_config: InputFile | None = None
    modules: InputFile | None = None
    """modules.json of sentence-transformers: what comes after the encoder."""
    pooling: InputFile | None = None

    @property
    def is_onnx(self) -> bool:
        return self.weights[0].name.endswith(".onnx")

    @property
    def all(self) -> tuple[InputFile, ...]:
        maybe = (self.config, *self.weights, self.tokenizer, self.tokenizer_config, self.modules, self.pooling)
        return tuple(f for f in maybe if f)

    @property
    def digest(self) -> str:
        """By name within the model and content: not by place, time or order."""
        return digest({PurePosixPath(f.name).name if f in self.weights else f.name: f.sha256 for f in self.all})


class PackageName(Struct, frozen=True):
    name: str
    version: str | None

    @property
    def key(self) -> str:
        """The normalised name (PEP 503)."""
        return re.sub(r"[-_.]+", "-", self.name).lower()

    @property
    def module(self) -> str:
        return re.sub(r"[-.]+", "_", self.name)

    def __str__(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name


def parse_package(source: str) -> PackageName | None:
    found = _PACKAGE.fullmatch(source)
    return PackageName(found[1], found[2]) if found else None


def find(source: str, root: Path, cache: Cache) -> ModelFiles | None:
    """The files; None for a package or a hub's model that is not on this machine yet. Raises EdgespecError for what
    cannot be right."""
    if package := parse_package(source):
        folder = installed_package(package, cache)
        return in_package(folder, package, cache) if folder else None
    if name := parse_hub(source):
        place = find_hub(name, cache, os.environ)
        return _directory(place, source, cache) if place else None
    path = _local_path(source, root)
    if path.suffix == ".onnx":
        return _onnx(path, source, cache)
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        raise fail("ES500", f"`source: {source}`: {path} {what}. A source is {FORMS}.")
    return _directory(path, source, cache)


def fetch(source: str, root: Path, cache: Cache, progress: Progress) -> ModelFiles:
    """The files, downloaded into the cache when they are not on this machine. Raises EdgespecError."""
    files = find(source, root, cache)
    if files is not None:
        return files
    if name := parse_hub(source):
        return _directory(download(name, cache, progress, os.environ), source, cache)
    package = parse_package(source)
    if package is None:
        raise TypeError("only packages and models of hubs are fetched")
    from edgespec.build.packages import install  # reads PackageName from here

    def waiting(who: str) -> None:
        progress(BuildEvent("fetch", f"waiting for {who}, which installs {package}"))

    with cache.claim("fetch", digest(source), source, waiting):
        return find(source, root, cache) or in_package(install(package, cache, progress), package, cache)


def _local_path(source: str, root: Path) -> Path:
    if not source.startswith("./") or ".." in source.split("/") or "\\" in source:
        hint = f" Did you mean `./{source}`?" if (root / source).exists() and not source.startswith(("/", ".")) else ""
        raise fail("ES501", f"`source: {source}` is not {FORMS}, inside the project and without '..'.{hint}")
    return root / source


def files_of(files: Mapping[str, InputFile]) -> ModelFiles:
    """A model's files by their names: of a folder in Hugging Face layout, or of one ONNX file with its tokenizer."""
    weights = tuple(f for n, f in sorted(files.items()) if n.endswith((".safetensors", ".onnx")))
    return ModelFiles(
        weights=weights,
        tokenizer=files["tokenizer.json"],
        config=files.get("config.json"),
        tokenizer_config=files.get("tokenizer_config.json"),
        modules=files.get("modules.json"),
        pooling=files.get("1_Pooling/config.json"),
    )


# --- packages


def installed_package(package: PackageName, cache: Cache) -> Path | None:
    """Its folder: in this environment, when the version fits, or in the cache."""
    spec = importlib.util.find_spec(package.module) if package.module.isidentifier() else None
    if spec and spec.submodule_search_locations and _version_fits(package):
        return Path(next(iter(spec.submodule_search_locations)))
    shelf = cache.root / "packages" / package.key
    versions = [p for p in shelf.glob("*") if p.is_dir() and not p.name.startswith(".")] if shelf.is_dir() else []
    fitting = [p for p in versions if package.version in (None, p.name)]
    found = max(fitting, key=_version_order, default=None)
    if found is not None:
        touch(found)
    return found


def _version_fits(package: PackageName) -> bool:
    if package.version is None:
        return True
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package.key) == package.version
    except PackageNotFoundError:
        return False


def _version_order(path: Path) -> tuple[tuple[int, ...], str]:
    return tuple(int(n) for n in re.findall(r"\d+", path.name)), path.name


def in_package(folder: Path, package: PackageName, cache: Cache) -> ModelFiles:
    """The one model inside a package."""
    candidates = [*_model_folders(folder)]
    if len(candidates) > 1:
        listed = ", ".join(str(p.relative_to(folder)) for p in candidates)
        raise fail(
            "ES504",
            f"the package {package} holds several models: {listed}. "
            "Copy the one that you mean into the project and write `source: ./DIR`.",
        )
    if candidates:
        return _directory(candidates[0], f"package:{package}", cache)
    graphs = [p for p in sorted(folder.rglob("*.onnx")) if (p.parent / "tokenizer.json").is_file()]
    if len(graphs) == 1:
        return _onnx(graphs[0], f"package:{package}", cache)
    raise fail(
        "ES504",
        f"the package {package} in {folder} has no folder with config.json, *.safetensors and tokenizer.json, "
        "and no single ONNX file beside a tokenizer.json.",
    )


def _model_folders(folder: Path) -> Iterator[Path]:
    for config in sorted(folder.rglob("config.json")):
        place = config.parent
        if (place / "tokenizer.json").is_file() and any(place.glob("*.safetensors")):
            yield place


# --- folders and ONNX files


def _directory(folder: Path, source: str, cache: Cache) -> ModelFiles:
    config = _text(folder, "config.json", cache)
    if config is None:
        raise fail("ES504", f"`source: {source}`: {folder} has no config.json; it is no model in Hugging Face layout.")
    single = _file(folder, "model.safetensors", cache, text=False)
    parts = [] if single else sorted(folder.glob("*.safetensors"))
    weights = (single,) if single else tuple(cache.input(p, p.name, text=False) for p in parts)
    if not weights:
        old = (folder / "pytorch_model.bin").exists()
        advice = (
            "Its pytorch_model.bin is a pickle, which edgespec does not run: write it anew with transformers, "
            "`AutoModel.from_pretrained(DIR).save_pretrained(DIR, safe_serialization=True)`."
            if old
            else "Download the model with its weights."
        )
        raise fail("ES504", f"`source: {source}`: {folder} has no *.safetensors. {advice}")
    return ModelFiles(
        weights=weights,
        tokenizer=_tokenizer(folder, source, cache),
        config=config,
        tokenizer_config=_text(folder, "tokenizer_config.json", cache),
        modules=_text(folder, "modules.json", cache),
        pooling=_text(folder, "1_Pooling/config.json", cache),
    )


def _onnx(path: Path, source: str, cache: Cache) -> ModelFiles:
    if not path.is_file():
        raise fail("ES500", f"`source: {source}`: {path} does not exist.")
    weights = cache.input(path, "model.onnx", text=False)
    folder = path.parent
    return ModelFiles(
        weights=(weights,),
        tokenizer=_tokenizer(folder, source, cache),
        config=_text(folder, "config.json", cache),
        tokenizer_config=_text(folder, "tokenizer_config.json", cache),
        pooling=_text(folder, "1_Pooling/config.json", cache),
    )


def _tokenizer(folder: Path, source: str, cache: Cache) -> InputFile:
    found = _text(folder, "tokenizer.json", cache)
    if found is None:
        raise fail("ES505", f"`source: {source}`: {folder} has no tokenizer.json. {_TOKENIZER_ADVICE}")
    return found


def _text(folder: Path, name: str, cache: Cache) -> InputFile | None:
    return _file(folder, name, cache, text=True)


def _file(folder: Path, name: str, cache: Cache, *, text: bool) -> InputFile | None:
    """None where there is no such file."""
    try:
        return cache.input(folder / name, name, text=text)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
