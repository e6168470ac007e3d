from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgespec.build.cache import Cache
from edgespec.build.events import BuildEvent
from edgespec.build.hub import HubName, parse_hub, place_of
from edgespec.build.pipeline import Pipeline
from edgespec.build.sources import ModelFiles, fetch, find
from edgespec.diagnostics import Diagnostic
from edgespec.spec.models import EdgeModel
from edgespec.values import UNKNOWN, sha256_hex
from tests.tiny import tiny_spec, write_tiny_bert
from tests.unit.build.hub_server import COMMIT, REPO, TinyHub, serve

Refused = Callable[[str, Callable[[], object]], Diagnostic]
HF, MS = f"hf:{REPO}@{COMMIT}", f"ms:{REPO}@{COMMIT}"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinyHub]:
    folder = write_tiny_bert(tmp_path / "repository", pooling="mean")
    (folder / "README.md").write_text("not a part of the model")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    with serve(folder) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url + "/")
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", served.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        for name in ("HF_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "MODELSCOPE_API_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield served


def get(source: str, tmp_path: Path, cache: Cache, events: list[BuildEvent] | None = None) -> ModelFiles:
    return fetch(source, tmp_path, cache, ([] if events is None else events).append)


# --- names


def test_names() -> None:
    assert parse_hub("./hf") is None
    assert parse_hub("package:hf") is None
    assert parse_hub(f"hf:sentence-transformers/all-MiniLM-L6-v2@{COMMIT}") == HubName(
        "hf", "sentence-transformers/all-MiniLM-L6-v2", COMMIT
    )
    name = parse_hub("ms:acme/Tiny_1.5@v1.0")
    assert name == HubName("ms", "acme/Tiny_1.5", "v1.0")
    assert not name.is_commit


@pytest.mark.parametrize(
    "source", ["hf:", "hf:tiny@v1", "hf:a/b/c@v1", "hf:../b@v1", "ms:a/b@", "hf:a/b@../c", "hf:a/b@v1 ", "hf:/a/b@v1"]
)
def test_what_is_no_name(source: str, refused: Refused) -> None:
    assert "ORG/NAME@REVISION" in refused("ES501", lambda: parse_hub(source)).detail


def test_a_revision_is_asked_for(refused: Refused) -> None:
    detail = refused("ES501", lambda: parse_hub("hf:acme/tiny")).detail
    assert "names no revision" in detail
    assert "`hf:acme/tiny@` and the commit (40 hex digits" in detail


# --- downloads


@pytest.mark.parametrize("source", [HF, MS, f"hf:{REPO}@v1.0", f"ms:{REPO}@v1.0"])
def test_the_files_of_a_revision(source: str, hub: TinyHub, tmp_path: Path, cache: Cache) -> None:
    assert find(source, tmp_path, cache) is None
    events: list[BuildEvent] = []
    files = get(source, tmp_path, cache, events)
    assert files.digest == get("./repository", tmp_path, cache).digest  # the content decides, not where it came from
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json"}
    assert {f.name for f in files.all} == names
    place = files.weights[0].path.parent
    origin = json.loads((place / ".origin").read_text())
    assert origin["source"] == source
    assert origin["commit"] == (None if source == f"ms:{REPO}@v1.0" else COMMIT)
    assert origin["files"] == {n: sha256_hex(hub.files[n]) for n in names}
    assert [e.stage for e in events] == ["fetch"] * len(events)
    assert events[-1].fraction == 1.0
    assert not [p for p in hub.requests if p.endswith(("README.md", "pytorch_model.bin"))]


def test_a_second_time_nothing_is_asked(hub: TinyHub, tmp_path: Path, cache: Cache) -> None:
    first = get(HF, tmp_path, cache)
    hub.requests.clear()
    assert get(HF, tmp_path, cache) == first
    assert find(HF, tmp_path, cache) == first
    assert hub.requests == []


def test_a_token_goes_to_the_hub_alone(
    hub: TinyHub, tmp_path: Path, cache: Cache, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_secret"
    detail = refused("ES502", lambda: get(HF, tmp_path, cache)).detail
    assert "Set HF_TOKEN" in detail
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "hf_wrong" not in refused("ES502", lambda: get(HF, tmp_path, cache)).detail
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    get(HF, tmp_path, cache)
    assert hub.tokens_at_storage == [None]


@pytest.mark.parametrize("source", [HF, MS])
def test_a_line_that_breaks_goes_on(source: str, hub: TinyHub, tmp_path: Path, cache: Cache) -> None:
    hub.breaks = {"model.safetensors": 3, "config.json": 1}
    assert get(source, tmp_path, cache).digest == get("./repository", tmp_path, cache).digest


def test_a_line_that_keeps_breaking(hub: TinyHub, tmp_path: Path, cache: Cache, refused: Refused) -> None:
    hub.breaks = {"model.safetensors": 100}
    assert "cannot be reached" in refused("ES502", lambda: get(HF, tmp_path, cache)).detail
    assert not place_of(HubName("hf", REPO, COMMIT), cache).exists()
    assert not list(cache.root.rglob(".fetching-*"))
    hub.breaks = {}
    get(HF, tmp_path, cache)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("source", [HF, MS])
def test_damage_is_noticed(
    source: str, name: str, hub: TinyHub, tmp_path: Path, cache: Cache, refused: Refused
) -> None:
    hub.damaged = {name}
    assert f"{name} arrived damaged" in refused("ES502", lambda: get(source, tmp_path, cache)).detail
    assert find(source, tmp_path, cache) is None


# --- what a hub does not have


def test_branches_move(hub: TinyHub, tmp_path: Path, cache: Cache, refused: Refused) -> None:
    detail = refused("ES502", lambda: get(f"hf:{REPO}@main", tmp_path, cache)).detail
    assert f"main is a branch, which moves. It is at {COMMIT} now" in detail
    detail = refused("ES502", lambda: get(f"ms:{REPO}@master", tmp_path, cache)).detail
    assert "master is a branch, which moves. There are the tags v1.0; or write a commit" in detail


@pytest.mark.parametrize("hub_name", ["hf", "ms"])
def test_no_such_revision(hub_name: str, hub: TinyHub, tmp_path: Path, cache: Cache, refused: Refused) -> None:
    detail = refused("ES502", lambda: get(f"{hub_name}:{REPO}@v9", tmp_path, cache)).detail
    assert "v9 is no tag of it. There are the tags v1.0" in detail
    assert "HTTP 404" in refused("ES502", lambda: get(f"{hub_name}:{REPO}@{'f' * 40}", tmp_path, cache)).detail


def test_what_is_no_model(hub: TinyHub, tmp_path: Path, cache: Cache, refused: Refused) -> None:
    tokenizer = hub.files.pop("tokenizer.json")
    assert "AutoTokenizer" in refused("ES505", lambda: get(HF, tmp_path, cache)).detail
    hub.files["tokenizer.json"] = tokenizer
    hub.files.pop("model.safetensors")
    assert "pytorch_model.bin is a pickle" in refused("ES504", lambda: get(HF, tmp_path, cache)).detail
    assert list(place_of(HubName("hf", REPO, COMMIT), cache).parent.iterdir()) == []


def test_a_hub_that_answers_nonsense(hub: TinyHub, tmp_path: Path, cache: Cache, refused: Refused) -> None:
    hub.status = 503
    assert "HTTP 503" in refused("ES502", lambda: get(HF, tmp_path, cache)).detail
    hub.status = 200
    assert "a form that is not the hub's" in refused("ES502", lambda: get(HF, tmp_path, cache)).detail
    assert "ModelScope says" in refused("ES502", lambda: get(MS, tmp_path, cache)).detail


# --- without a network


def test_offline_says_how_to_supply_the_files(
    tmp_path: Path, cache: Cache, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    detail = refused("ES502", lambda: get(HF, tmp_path, cache)).detail
    assert "127.0.0.1 cannot be reached (ConnectError)" in detail
    assert (
        f"`hf download acme/tiny --revision {COMMIT} --include '*.json' '*.safetensors' --local-dir models/tiny`"
        in detail
    )
    assert "write `source: ./models/tiny`" in detail
    detail = refused("ES502", lambda: get(MS, tmp_path, cache)).detail
    assert f"`modelscope download --model acme/tiny --revision {COMMIT} --local_dir models/tiny`" in detail


def test_told_to_be_offline(
    hub: TinyHub, tmp_path: Path, cache: Cache, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set" in refused("ES502", lambda: get(HF, tmp_path, cache)).detail
    assert hub.requests == []


def test_what_hugging_faces_own_tools_downloaded(hub: TinyHub, tmp_path: Path, cache: Cache) -> None:
    repo = tmp_path / "hf" / "hub" / "models--acme--tiny"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "v1.0").write_text(COMMIT)
    snapshot = repo / "snapshots" / COMMIT
    shutil.copytree(tmp_path / "repository", snapshot)
    for source in (HF, f"hf:{REPO}@v1.0"):
        files = find(source, tmp_path, cache)
        assert files is not None
        assert files.weights[0].path == snapshot / "model.safetensors"
    (snapshot / "model.safetensors").rename(snapshot / "model-00001-of-00002.safetensors")
    assert find(HF, tmp_path, cache) is None
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    assert find(HF, tmp_path, cache) is None  # the second part is not there yet
    shutil.copy(snapshot / "model-00001-of-00002.safetensors", snapshot / "model-00002-of-00002.safetensors")
    assert find(HF, tmp_path, cache) is not None
    assert hub.requests == []


def test_a_build_fetches_what_a_plan_could_not_know(hub: TinyHub, tmp_path: Path, cache: Cache) -> None:
    document = tiny_spec(source=HF, task={"type": "embedding", "max_tokens": 16})
    document["model"].pop("pipeline")
    spec = EdgeModel.model_validate(document)
    pipeline = Pipeline(tmp_path, cache, lambda _: None)
    assert pipeline.facts(spec).inputs["source_digest"] is UNKNOWN
    manifest = pipeline.build(spec)
    assert pipeline.facts(spec).manifest == manifest
    hub.status = 500
    assert pipeline.build(spec) == manifest
