"""A project as git has it: its files at a revision, read from git's objects, and which files of the work tree differ.

git itself is asked, by plain commands that change nothing. No work tree is needed for two revisions, and none is
touched; a shallow clone has what it has, and is told how to get the rest.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from edgespec.diagnostics import EdgespecError, error

_QUIET: Final = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
_LINKS: Final = 8
"""Symbolic links that are followed from one name."""
_LINK_MODE: Final = "120000"
_FILE_MODES: Final = frozenset({"100644", "100755", _LINK_MODE})


@dataclass(frozen=True, slots=True)
class Revision:
    """`name` as it was asked for."""

    name: str
    commit: str


class Repository:
    """The git repository that a project is in. Close it: it keeps one `git cat-file` running."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the project's, in a work tree or, in a repository without one, the repository's. Raises ES720
        where there is no git or no repository."""
        self._folder = folder
        try:
            said = self._run("rev-parse", "--is-bare-repository", "--show-prefix").split("\n")
        except _FailedError as e:
            raise EdgespecError(error("ES720", "Not in a git repository", f"{folder}: {e.said}")) from None
        self.bare = said[0] == "true"
        self.prefix = "" if self.bare else said[1]
        """The project's folder within the repository, empty or with a slash at its end."""
        self._top = folder if self.bare else Path(self._run("rev-parse", "--show-toplevel").rstrip("\n"))
        self._blobs: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._reader: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        if self._reader is not None:
            with contextlib.suppress(OSError):
                _pipe(self._reader.stdin).close()
            self._reader.wait()
            _pipe(self._reader.stdout).close()
            self._reader = None

    # --- revisions

    def resolve(self, name: str) -> Revision:
        """Raises ES721 for what names no commit here."""
        try:
            commit = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
        except _FailedError:
            raise EdgespecError(error("ES721", "Unknown revision", self._missing(name))) from None
        return Revision(name, commit)

    def merge_base(self, one: Revision, other: Revision) -> Revision:
        """Where the two parted. Raises ES722 where this clone does not reach back that far."""
        try:
            commit = self._run("merge-base", one.commit, other.commit).strip()
        except _FailedError:
            detail = f"{one.name} and {other.name} have no common commit here. "
            detail += "This clone is shallow: fetch the rest with `git fetch --unshallow`." if self.shallow else (
                f"Compare them as they are: {one.name}..{other.name}."
            )  # fmt: skip
            raise EdgespecError(error("ES722", "No common commit", detail)) from None
        return Revision(f"{one.name}...{other.name}", commit)

    @property
    def shallow(self) -> bool:
        return self._run("rev-parse", "--is-shallow-repository").strip() == "true"

    def _missing(self, name: str) -> str:
        detail = f"`{name}` names no commit of this repository."
        if not self.shallow:
            return detail
        plain = name.split("~")[0].split("^")[0].removeprefix("origin/") or "HEAD"
        if plain == name.removeprefix("origin/"):
            how = f"`git fetch --depth=1 origin {plain}`"
            how += f", then ask for FETCH_HEAD, or name it: `git fetch --depth=1 origin {plain}:{plain}`"
        else:
            how = "`git fetch --deepen=50`"
        return f"{detail} This clone is shallow and may lack it: fetch it with {how}; or all: `git fetch --unshallow`."

    # --- what is in it

    def files(self, revision: Revision) -> GitFiles:
        listed = self._run("ls-tree", "-r", "-z", "--full-tree", revision.commit, "--", *self._below())
        entries: dict[str, tuple[str, str]] = {}
        for line in listed.split("\0"):
            if not line:
                continue
            meta, _, path = line.partition("\t")
            mode, _, sha = meta.split(" ")[:3]
            if mode in _FILE_MODES:
                entries[path.removeprefix(self.prefix)] = (mode, sha)
        return GitFiles(self, entries)

    def blob(self, sha: str) -> bytes:
        with self._lock:
            if sha not in self._blobs:
                self._blobs[sha] = self._read(sha)
            return self._blobs[sha]

    def ids_of(self, paths: Sequence[str]) -> dict[str, str]:
        """What git would call these files of the work tree, as its filters leave them; those that are not there are
        left out. Nothing is written."""
        there = [p for p in dict.fromkeys(paths) if "\n" not in p and (self._folder / p).is_file()]
        if not there:
            return {}
        asked = "".join(f"{self.prefix}{p}\n" for p in there)  # this command reads them from the top, wherever it runs
        said = self._run("hash-object", "--stdin-paths", given=asked, folder=self._top)
        return dict(zip(there, said.split("\n"), strict=False))

    def origin(self) -> str:
        """The address of the remote `origin`, as git has it; empty where there is none."""
        try:
            return self._run("config", "--get", "remote.origin.url").strip()
        except _FailedError:
            return ""

    def is_dirty(self, besides: Sequence[str] = ()) -> bool:
        """Whether the project's folder, `besides` these parts of it, holds what no commit has; ignored files do not
        count."""
        found = self._run("status", "--porcelain", "-z", "--", ".").split("\0")
        left_out = tuple(f"{self.prefix}{path.rstrip('/')}/" for path in besides)
        return any(entry and not (left_out and entry[3:].startswith(left_out)) for entry in found)

    def lines(self, before: Revision, after: Revision | None, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Lines added and removed, by path; `after` None is the work tree. What is no text is left out."""
        if not paths:
            return {}
        sides = [before.commit] if after is None else [before.commit, after.commit]
        specs = [f":(top,literal){self.prefix}{p}" for p in paths]
        said = self._run("diff", "--no-ext-diff", "--no-renames", "--numstat", "-z", *sides, "--", *specs)
        found: dict[str, tuple[int, int]] = {}
        for line in said.split("\0"):
            added, _, rest = line.partition("\t")
            removed, _, path = rest.partition("\t")
            if added.isdigit() and removed.isdigit():
                found[path.removeprefix(self.prefix)] = (int(added), int(removed))
        return found

    # --- git

    def _below(self) -> list[str]:
        return [self.prefix] if self.prefix else []

    def _run(self, *arguments: str, given: str | None = None, folder: Path | None = None) -> str:
        command = ["git", "-C", str(folder or self._folder), "--literal-pathspecs", *arguments]
        if arguments[0] == "diff":
            command.remove("--literal-pathspecs")  # the pathspecs say so themselves
        try:
            ran = subprocess.run(
                command,
                input=None if given is None else given.encode("utf-8", "surrogateescape"),
                stdin=subprocess.DEVNULL if given is None else None,
                capture_output=True,
                env={**os.environ, **_QUIET},
                check=False,
            )
        except OSError as e:
            raise EdgespecError(error("ES720", "git cannot be run", f"git: {e.strerror}. Install it.")) from None
        if ran.returncode != 0:
            raise _FailedError(arguments[0], ran.stderr.decode("utf-8", "replace").strip())
        return ran.stdout.decode("utf-8", "surrogateescape")

    def _read(self, sha: str) -> bytes:
        if self._reader is None:
            self._reader = subprocess.Popen(
                ["git", "-C", str(self._folder), "cat-file", "--batch"],  # noqa: S607  # whichever git is in use
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_QUIET},
            )
        to, back = _pipe(self._reader.stdin), _pipe(self._reader.stdout)
        try:
            to.write(f"{sha}\n".encode())
            to.flush()
            head = back.readline().split()
        except OSError:
            head = []
        if len(head) != 3 or head[1] != b"blob":
            raise OSError(5, f"git has no object {sha[:12]}; fetch it with `git fetch --refetch`")
        data = back.read(int(head[2]))
        back.read(1)
        return data


class _FailedError(EdgespecError):
    """A command of git's that ended with an error."""

    def __init__(self, command: str, said: str) -> None:
        self.said = said.splitlines()[0].removeprefix("fatal: ") if said else "git gave no reason"
        super().__init__(error("ES724", "git cannot do this", f"git {command}: {self.said}"))


def _pipe(found: IO[bytes] | None) -> IO[bytes]:
    if found is None:
        raise TypeError("opened with a pipe")
    return found


class GitFiles:
    """The project's files at a revision, as edgespec.files.Files asks for them."""

    def __init__(self, repository: Repository, entries: Mapping[str, tuple[str, str]]) -> None:
        self._repository = repository
        self._entries = entries

    def glob(self, pattern: str) -> list[str]:
        parts = [p for p in pattern.split("/") if p not in ("", ".")]
        return sorted(n for n in self._entries if matches(n.split("/"), parts))

    def read(self, path: str) -> bytes:
        entry = self._entry(path)
        if entry is None:
            raise FileNotFoundError(2, "No such file in this revision")
        return self._repository.blob(entry)

    def id(self, path: str) -> str | None:
        """git's digest of a file; None where the revision has no such file."""
        return self._entry(path)

    def below(self, folder: str) -> Iterator[str]:
        """The names of all files in a folder."""
        start = f"{folder.rstrip('/')}/"
        return (n for n in sorted(self._entries) if n.startswith(start))

    def _entry(self, path: str) -> str | None:
        for _ in range(_LINKS):
            mode, sha = self._entries.get(path, ("", ""))
            if mode != _LINK_MODE:
                return sha or None
            target = self._repository.blob(sha).decode("utf-8", "surrogateescape")
            path = os.path.normpath(PurePosixPath(path).parent / target)
        return None


def matches(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """As Python's glob: `**` is any number of folders, and what begins with a dot is matched only by a dot."""
    if not pattern:
        return not name
    if [*pattern] == ["**"]:
        return bool(name) and not any(part.startswith(".") for part in name)
    if pattern[0] == "**":
        if matches(name, pattern[1:]):
            return True
        return bool(name) and not name[0].startswith(".") and matches(name[1:], pattern)
    if not name or (name[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(name[0], pattern[0]) and matches(name[1:], pattern[1:])
