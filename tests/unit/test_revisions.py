"""A project's files out of git: real repositories, made on the spot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.diagnostics import EdgespecError
from edgespec.diffing import diff
from edgespec.files import DiskFiles
from edgespec.plan.comparison import Effect, Kind
from edgespec.revisions import GitFiles, Repository, matches
from edgespec.spec.diff.model import Risk
from tests.cases.diff_cases import Git

PROJECT = "apiVersion: edgespec/v1\nkind: Project\nname: shop\n"
SPEC = (
    "apiVersion: edgespec/v1\nkind: EdgeModel\nmetadata: {name: alpha}\n"
    "model: {source: package:minilm, pipeline: [{head: {train: data/train.jsonl}}]}\n"
    "task: {type: text-classification, labels: [a, b]}\n"
)
FILES: dict[str, str | None] = {"edgespec.yaml": PROJECT, "specs/alpha.yaml": SPEC, "data/train.jsonl": "{}\n"}


@pytest.fixture
def git(tmp_path: Path) -> Git:
    made = Git(tmp_path / "project")
    made.commit(FILES)
    return made


@pytest.fixture
def files(git: Git) -> Iterator[GitFiles]:
    with closing(Repository(git.root)) as repository:
        yield repository.files(repository.resolve("HEAD"))


def changes(root: Path, asked: str | None = None) -> list[tuple[str, Effect | None]]:
    found = diff(root, asked, (), {"EDGESPEC_CACHE_DIR": str(root / "no-cache")})
    return [(m.name, m.effect) for e in found.environments for m in e.models]


# --- reading


def test_reads_what_a_revision_has_and_not_what_the_work_tree_has(git: Git, files: GitFiles) -> None:
    git.write({"specs/alpha.yaml": "other", "specs/beta.yaml": SPEC})
    assert files.glob("specs/*.yaml") == ["specs/alpha.yaml"]
    assert files.read("specs/alpha.yaml").decode() == SPEC
    with pytest.raises(OSError, match="No such file in this revision"):
        files.read("specs/beta.yaml")


def test_a_project_in_a_folder_of_its_repository(tmp_path: Path) -> None:
    git = Git(tmp_path)
    git.commit({f"shops/éu/{name}": text for name, text in FILES.items()} | {"specs/else.yaml": "no"})
    with closing(Repository(tmp_path / "shops" / "éu")) as repository:
        found = repository.files(repository.resolve("HEAD"))
        assert found.glob("**/*.yaml") == ["edgespec.yaml", "specs/alpha.yaml"]
        assert repository.ids_of(["data/train.jsonl", "gone"]) == {"data/train.jsonl": found.id("data/train.jsonl")}
        assert not repository.is_dirty()
        git.write({"shops/éu/data/train.jsonl": "{}\n{}\n", "elsewhere": "x"})
        assert repository.is_dirty()
        head = repository.resolve("HEAD")
        assert repository.lines(head, None, ["data/train.jsonl"]) == {"data/train.jsonl": (1, 0)}


def test_symbolic_links_are_followed_as_on_disk(git: Git) -> None:
    (git.root / "specs" / "link.yaml").symlink_to("../specs/alpha.yaml")
    (git.root / "specs" / "circle.yaml").symlink_to("circle.yaml")
    git.commit({})
    with closing(Repository(git.root)) as repository:
        found = repository.files(repository.resolve("HEAD"))
        assert found.read("specs/link.yaml").decode() == SPEC
        with pytest.raises(OSError, match="No such file"):
            found.read("specs/circle.yaml")


NAMES = st.lists(st.sampled_from(["a", "b.yaml", ".h", ".h.yaml", "c-d"]), min_size=1, max_size=3).map("/".join)
PARTS = ["*", "a", "*.yaml", ".*", "?", "[ab]*"]
PATTERNS = st.tuples(st.lists(st.sampled_from([*PARTS, "**", "."]), max_size=3), st.sampled_from(PARTS)).map(
    lambda p: [*p[0], p[1]]
)


@settings(max_examples=150)
@given(names=st.sets(NAMES, max_size=6), parts=PATTERNS)
def test_globs_find_what_they_find_on_disk(
    names: set[str], parts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("glob")
    for name in sorted(names):
        if not any((root / p).is_file() for p in Path(name).parents if str(p) != ".") and not (root / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("")
    there = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()]
    pattern = "/".join(parts)
    on_disk = {n for n in DiskFiles(root).glob(pattern) if (root / n).is_file()}
    assert {n for n in there if matches(n.split("/"), [p for p in parts if p != "."])} == on_disk


# --- which revisions


def test_nothing_named_is_the_last_commit_and_the_work_tree(git: Git) -> None:
    assert changes(git.root) == []
    git.write({"specs/alpha.yaml": SPEC.replace("[a, b]", "[a, b], display: {a: A}")})
    assert changes(git.root) == [("alpha", Effect.RELABELLED)]
    git.write({"specs/beta.yaml": SPEC.replace("alpha", "beta")})  # not even added
    assert changes(git.root) == [("alpha", Effect.RELABELLED), ("beta", None)]
    assert changes(git.root, "HEAD..HEAD") == []


def test_data_that_is_edited_in_the_work_tree_and_its_line_ends(git: Git) -> None:
    git.commit({".gitattributes": "*.jsonl text eol=crlf\n"})
    (git.root / "data" / "train.jsonl").write_bytes(b"{}\r\n")
    assert changes(git.root) == []  # as git's own filters leave it
    git.write({"data/train.jsonl": "{}\n{}\n"})
    assert changes(git.root) == [("alpha", Effect.REBUILT)]


def test_three_dots_leave_out_what_the_other_branch_did_meanwhile(git: Git) -> None:
    git.run("checkout", "-q", "-b", "topic")
    git.commit({"specs/beta.yaml": SPEC.replace("alpha", "beta")})
    git.run("checkout", "-q", "main")
    git.commit({"specs/gamma.yaml": SPEC.replace("alpha", "gamma")})
    assert changes(git.root, "main..topic") == [("beta", None), ("gamma", None)]
    assert changes(git.root, "main...topic") == [("beta", None)]


def test_a_repository_without_a_work_tree(git: Git, tmp_path: Path) -> None:
    git.commit({"specs/beta.yaml": SPEC.replace("alpha", "beta")})
    git.run("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert changes(tmp_path / "bare.git", "main~1..main") == [("beta", None)]
    with pytest.raises(EdgespecError, match="ES723"):
        changes(tmp_path / "bare.git", "main")


def test_a_shallow_clone_says_what_to_fetch(git: Git, tmp_path: Path) -> None:
    git.commit({"specs/beta.yaml": SPEC.replace("alpha", "beta")})
    git.run("branch", "release")
    git.run("clone", "-q", "--depth=1", "--branch=main", git.root.as_uri(), str(tmp_path / "clone"))
    clone = tmp_path / "clone"
    assert changes(clone) == []
    with pytest.raises(EdgespecError, match=r"ES721.*shallow.*git fetch --deepen=50"):
        changes(clone, "HEAD~1..HEAD")
    with pytest.raises(EdgespecError, match=r"ES721.*git fetch --depth=1 origin release:release"):
        changes(clone, "origin/release")
    shallow = Git(clone)
    shallow.run("fetch", "-q", "--depth=1", "origin", "release:release")
    assert changes(clone, "release..HEAD") == []
    shallow.run("fetch", "-q", "--deepen=50")
    assert changes(clone, "HEAD~1..HEAD") == [("beta", None)]


def test_histories_that_share_nothing(git: Git) -> None:
    git.run("checkout", "-q", "--orphan", "other")
    git.commit({"specs/beta.yaml": SPEC.replace("alpha", "beta")})
    with pytest.raises(EdgespecError, match=r"ES722.*main\.\.other"):
        changes(git.root, "main...other")


def test_a_name_that_is_no_revision_and_one_that_looks_like_an_option(git: Git) -> None:
    for name in ("nothing", "--help", "-n", "HEAD:specs"):
        with pytest.raises(EdgespecError, match="ES721"):
            changes(git.root, name)


def test_no_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")  # the folders above may be in one
    with pytest.raises(EdgespecError, match="ES720"):
        changes(tmp_path)


# --- projects that come and go


def test_a_project_that_is_new(tmp_path: Path) -> None:
    git = Git(tmp_path)
    git.commit({"README.md": "hello"})
    git.commit(FILES)
    found = diff(tmp_path, "HEAD~1..HEAD", (), {})
    (environment,) = found.environments
    assert (environment.kind, [m.kind for m in environment.models]) == (Kind.ADDED, [Kind.ADDED])
    assert found.risk is Risk.LOW
    (tmp_path / "empty").mkdir()
    with pytest.raises(EdgespecError, match="ES138"):
        diff(tmp_path / "empty", "HEAD", (), {})


def test_what_is_wrong_in_a_revision_is_told_with_the_revision(git: Git) -> None:
    git.commit({"specs/alpha.yaml": SPEC.replace("labels: [a, b]", "labels: [a]")})
    git.commit({"specs/alpha.yaml": SPEC})
    with pytest.raises(EdgespecError, match=r"HEAD~1:specs/alpha\.yaml:5:\d+: error ES112"):
        changes(git.root, "HEAD~1")


def test_an_environment_that_is_on_neither_side(git: Git) -> None:
    with pytest.raises(EdgespecError, match="ES133"):
        diff(git.root, "HEAD", ("prod",), {})


def test_variables_need_not_be_set(git: Git) -> None:
    cloud = PROJECT + "environments: {prod: {target: {type: cloudflare, account: '${NO_SUCH}'}}}\n"
    git.commit({"edgespec.yaml": cloud})
    git.write({"specs/alpha.yaml": SPEC.replace("[a, b]", "[a, b, c]")})
    assert changes(git.root) == [("alpha", Effect.REBUILT)]
