"""What two hubs are asked: which files a revision has, with their digests, and the files' bytes.

Hugging Face: GET /api/models/<repo>/refs, /api/models/<repo>/revision/<revision>?blobs=true, and
/<repo>/resolve/<commit>/<path>. ModelScope: GET /api/v1/models/<repo>/revisions, .../repo/files?Revision=&Recursive=,
and .../repo?Revision=&FilePath=.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    import httpx

ATTEMPTS: Final = 4
"""For one file; a line that broke goes on where it was."""
_CHUNK: Final = 1 << 20
_TIMEOUT: Final = 30.0
_HUGGING_FACE: Final = "https://huggingface.co"
_MODEL_SCOPE: Final = "https://modelscope.cn"


class HubError(Exception):
    """What went wrong, as a sentence. `unreachable`: another machine may have more luck."""

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


@dataclass(frozen=True, slots=True)
class HubFile:
    path: str
    size: int
    url: str
    sha256: str | None
    git_sha1: str | None
    """Of the blob in git, for files that are small enough to be in it."""


@dataclass(frozen=True, slots=True)
class Listing:
    commit: str | None
    """None where the hub does not tell which commit a tag is of."""
    files: tuple[HubFile, ...]


class Hub(Protocol):
    client: httpx.Client

    def listing(self, repo: str, revision: str) -> Listing:
        """The files of a commit or a tag; raises HubError, for a branch too."""


@contextlib.contextmanager
def open_hub(hub: str, environ: Mapping[str, str]) -> Iterator[Hub]:
    """A client for `hf` or `ms`. A token goes to the hub itself and to none that it redirects to."""
    import httpx

    prefix, default, token = (
        ("HF_ENDPOINT", _HUGGING_FACE, environ.get("HF_TOKEN"))
        if hub == "hf"
        else ("MODELSCOPE_ENDPOINT", _MODEL_SCOPE, environ.get("MODELSCOPE_API_TOKEN"))
    )
    endpoint = (environ.get(prefix) or default).rstrip("/")
    headers = {"User-Agent": "edgespec", **({"Authorization": f"Bearer {token}"} if token else {})}
    with httpx.Client(base_url=endpoint, headers=headers, timeout=_TIMEOUT, follow_redirects=True) as client:
        yield HuggingFace(client) if hub == "hf" else ModelScope(client)


class HuggingFace:
    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def listing(self, repo: str, revision: str) -> Listing:
        if not _is_commit(revision):
            revision = self._commit_of(repo, revision)
        body = _json(self.client, f"/api/models/{repo}/revision/{revision}", {"blobs": "true"})
        try:
            commit = str(body["sha"])
            files = tuple(self._file(repo, commit, s) for s in body["siblings"])
        except (KeyError, TypeError) as why:
            raise HubError(f"{self.client.base_url} answers in a form that is not the hub's ({why!r}).") from None
        if commit != revision:
            raise HubError(f"it was asked for {revision} and answers with {commit}.")
        return Listing(commit, files)

    def _file(self, repo: str, commit: str, sibling: Any) -> HubFile:
        path, lfs = str(sibling["rfilename"]), sibling.get("lfs") or {}
        url = f"/{repo}/resolve/{commit}/{quote(path)}"
        in_git = None if lfs else sibling.get("blobId")
        return HubFile(path, int(lfs.get("size", sibling.get("size")) or 0), url, lfs.get("sha256"), in_git)

    def _commit_of(self, repo: str, tag: str) -> str:
        body = _json(self.client, f"/api/models/{repo}/refs", {})
        tags = {t["name"]: t["targetCommit"] for t in body.get("tags", [])}
        branches = {b["name"]: b["targetCommit"] for b in body.get("branches", [])}
        if tag in tags:
            return str(tags[tag])
        if tag in branches:
            raise HubError(f"{tag} is a branch, which moves. It is at {branches[tag]} now: write that after the @.")
        raise HubError(_no_such(tag, tags))


class ModelScope:
    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def listing(self, repo: str, revision: str) -> Listing:
        commit = revision if _is_commit(revision) else None
        if commit is None:
            self._check_tag(repo, revision)
        data = self._data(f"/api/v1/models/{repo}/repo/files", {"Revision": revision, "Recursive": "True"})
        try:
            files = tuple(self._file(repo, revision, f) for f in data["Files"] if f["Type"] == "blob")
        except (KeyError, TypeError) as why:
            raise HubError(f"{self.client.base_url} answers in a form that is not the hub's ({why!r}).") from None
        return Listing(commit, files)

    def _file(self, repo: str, revision: str, file: Any) -> HubFile:
        path = str(file["Path"])
        url = f"/api/v1/models/{repo}/repo?Revision={quote(revision, safe='')}&FilePath={quote(path, safe='')}"
        return HubFile(path, int(file["Size"]), url, file.get("Sha256") or None, None)

    def _check_tag(self, repo: str, tag: str) -> None:
        known = self._data(f"/api/v1/models/{repo}/revisions", {}).get("RevisionMap") or {}
        tags = {t["Revision"]: t for t in known.get("Tags") or []}
        if tag in tags:
            return
        if tag in {b["Revision"] for b in known.get("Branches") or []}:
            raise HubError(f"{tag} is a branch, which moves. {_no_such('', tags).strip()}")
        raise HubError(_no_such(tag, tags))

    def _data(self, path: str, query: dict[str, str]) -> Any:
        body = _json(self.client, path, query)
        if not isinstance(body, dict) or not isinstance(body.get("Data"), dict):
            said = body.get("Message") if isinstance(body, dict) else None
            raise HubError(f"ModelScope says: {said or 'nothing that is understood'}.")
        return body["Data"]


def _is_commit(revision: str) -> bool:
    return len(revision) == 40 and set(revision) <= set("0123456789abcdef")


def _no_such(tag: str, tags: Mapping[str, object]) -> str:
    there = f"There are the tags {', '.join(sorted(tags)[:10])}" if tags else "There are no tags"
    gone = f"{tag} is no tag of it. " if tag else ""
    return f"{gone}{there}; or write a commit, 40 hex digits."


def _json(client: httpx.Client, path: str, query: dict[str, str]) -> Any:
    import httpx

    try:
        answer = client.get(path, params=query)
    except httpx.TransportError as why:
        raise HubError(_unreachable(client, why), unreachable=True) from None
    _check(client, answer)
    try:
        return answer.json()
    except ValueError:
        raise HubError(f"{client.base_url} answers with no JSON.", unreachable=True) from None


def _unreachable(client: httpx.Client, why: Exception) -> str:
    return f"{client.base_url.host} cannot be reached ({type(why).__name__})."


def _check(client: httpx.Client, answer: httpx.Response) -> None:
    status, host = answer.status_code, client.base_url.host
    if status < 400:
        return
    variable = "MODELSCOPE_API_TOKEN" if "/api/v1/" in str(answer.request.url) else "HF_TOKEN"
    if status in (401, 403):
        raise HubError(
            f"{host} refuses it (HTTP {status}): the model does not exist, is private, or its licence has to be "
            f"accepted on its page first. Set {variable} to a token of an account that may read it."
        )
    if status == 404:
        raise HubError(f"{host} does not have it (HTTP 404). Check the name and the revision.")
    raise HubError(f"{host} answers with HTTP {status}.", unreachable=status == 429 or status >= 500)


# --- bytes


def fetch(hub: Hub, file: HubFile, target: Path, more: Callable[[int], None]) -> None:
    """Streams one file to `target` and verifies it; `more` hears how many bytes there are. Raises HubError."""
    if file.sha256 is None and file.git_sha1 is None:
        raise HubError(f"the hub states no digest of {file.path}, so it cannot be verified.")
    target.parent.mkdir(parents=True, exist_ok=True)
    sums = _Sums(file)
    with target.open("wb") as out:
        for attempt in range(ATTEMPTS):
            try:
                _stream(hub.client, file, out, sums, more)
                break
            except HubError as why:
                if not why.unreachable or attempt == ATTEMPTS - 1:
                    raise
    if not sums.right:
        raise HubError(
            f"{file.path} arrived damaged: {sums.count} bytes that are not those the hub states a digest of."
        )


class _Sums:
    def __init__(self, file: HubFile) -> None:
        self._file = file
        self.restart()

    def restart(self) -> None:
        self.count = 0
        self._sha256 = hashlib.sha256()
        self._sha1 = hashlib.sha1(b"blob %d\0" % self._file.size, usedforsecurity=False)

    def update(self, data: bytes) -> None:
        self.count += len(data)
        self._sha256.update(data)
        self._sha1.update(data)

    @property
    def right(self) -> bool:
        if self._file.sha256 is not None:
            return self._sha256.hexdigest() == self._file.sha256
        return self._sha1.hexdigest() == self._file.git_sha1


def _stream(client: httpx.Client, file: HubFile, out: IO[bytes], sums: _Sums, more: Callable[[int], None]) -> None:
    import httpx

    # Bytes as they are: a digest is of the file, not of what a server compressed on the way.
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={sums.count}-"} if sums.count else {})}
    try:
        with client.stream("GET", file.url, headers=headers) as answer:
            _check(client, answer)
            if sums.count and answer.status_code != httpx.codes.PARTIAL_CONTENT:
                out.seek(0)
                out.truncate()
                sums.restart()
            for data in answer.iter_bytes(_CHUNK):
                out.write(data)
                sums.update(data)
                more(sums.count)
                if sums.count > file.size:
                    raise HubError(f"{file.path} is longer than the hub says.")
    except httpx.TransportError as why:
        raise HubError(_unreachable(client, why), unreachable=True) from None
