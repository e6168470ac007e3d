"""Secrets by taint: a value that cannot be shown, and the cleaning of texts that others made.

A `Secret` has a name, which may be shown, and a text, which `reveal` gives to the one call that needs it. Whatever else
is done with it (print, format, JSON, pickle, state, plan) gives the name. What comes back from outside is another
matter: an SDK's message, an API's answer or a traceback may quote the text, whole or in pieces, as it is or encoded.
`scrub` takes every text that this process has made a `Secret` of out of such a text (hashicorp/terraform#35609,
cdkd#1914).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn
from urllib.parse import quote, quote_plus

from msgspec import Struct

MARK: Final = "$secret"
SHORTEST: Final = 4
"""Characters: a shorter text is found in too many others to be taken out of them. The taint holds all the same."""
_PIECES: Final = 8
"""Characters that a text must have to be looked for in pieces."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Secret:
    """`digest` tells a changed secret from the same one. It is slow to compute (scrypt, 16 MiB), so that guessing a
    weak text from state costs a guesser that much a try. `sealed` ones know no text: they come from state."""

    __slots__ = ("_digest", "_text", "name")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text: str | None = text
        self._digest: str | None = None
        _LIVE.add(name, text)

    @classmethod
    def sealed(cls, name: str, digest: str) -> Secret:
        """What state remembers of one."""
        found = cls.__new__(cls)
        found.name, found._text, found._digest = name, None, digest
        return found

    @property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        if self._digest is None:
            salt = b"edgespec.secret/v1\0" + self.name.encode()
            found = hashlib.scrypt(_bytes(self.reveal()), salt=salt, n=2**14, r=8, p=1, maxmem=2**26, dklen=32)
            self._digest = found.hex()
        return self._digest

    def reveal(self) -> str:
        """The text: for the call that carries it, and for nothing that keeps or shows it."""
        if self._text is None:
            raise ValueError(f"the secret {self.name} is known by its digest alone")
        return self._text

    def derive(self, name: str, text: str) -> Secret:
        """Another secret that follows from this one."""
        return Secret(f"{self.name} ({name})", text)

    def document(self) -> dict[str, str]:
        """What state and plans keep of it."""
        return {MARK: self.name, "digest": self.digest}

    def __bool__(self) -> bool:
        return self._text != ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if self.name != other.name:
            return False
        if self._text is not None and other._text is not None:
            return hmac.compare_digest(_bytes(self._text), _bytes(other._text))
        return hmac.compare_digest(self.digest, other.digest)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"(secret {self.name})"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"the secret {self.name} is not written anywhere")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def written(value: object) -> object:
    """For `json.dumps(default=...)`: a secret as what state and plans keep of it."""
    if isinstance(value, Secret):
        return value.document()
    raise TypeError(f"{type(value).__name__} cannot be written")


def unsealed(value: Any) -> Any:
    """What was `written`, read again: secrets without their texts. The same object where there is none."""
    if isinstance(value, dict):
        if value.keys() == {MARK, "digest"} and _DIGEST.fullmatch(str(value["digest"])):
            return Secret.sealed(str(value[MARK]), str(value["digest"]))
        found = {k: unsealed(v) for k, v in value.items()}
        return found if any(found[k] is not v for k, v in value.items()) else value
    if isinstance(value, list):
        items = [unsealed(v) for v in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


# --- texts that others made ------------------------------------------------------------------------------------------


def scrub(text: str) -> str:
    """`text` without the text of any secret of this process: as it is, JSON- or URL-encoded, in base64 or
    hexadecimal, and cut into pieces by white space, quotes, line ends or colours."""
    return _LIVE.scrub(text)


def scrub_exception(e: BaseException) -> None:
    """Take every secret out of what `e`, its causes, contexts, notes and parts say of themselves, in place."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [e]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        found.args = tuple(_cleaned(a) for a in found.args)
        _clean_fields(found)
        if isinstance(found, OSError):  # shown by these, not by its arguments
            found.strerror, found.filename = _cleaned(found.strerror), _cleaned(found.filename)
        waiting += [found.__cause__, found.__context__]
        waiting += getattr(found, "exceptions", ())


def scrub_logs() -> None:
    """From now on no record of `logging` holds the text of a secret, whoever writes it and wherever it goes: SDKs log
    headers and signatures when they are told to."""
    import logging

    before = logging.getLogRecordFactory()
    if isinstance(before, _Records):
        return
    logging.setLogRecordFactory(_Records(before))


class _Records(Struct, frozen=True):
    before: Callable[..., Any]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        record = self.before(*arguments, **named)
        if record.args:
            record.msg, record.args = record.getMessage(), ()
        record.msg = scrub(str(record.msg))
        if record.exc_info and record.exc_info[1] is not None:
            scrub_exception(record.exc_info[1])
        return record


def _clean_fields(value: Any) -> None:
    """Of an exception, or of a model that an SDK has put into one."""
    fields = getattr(value, "__dict__", {})
    for name, old in list(fields.items()):
        if (new := _cleaned(old)) is not old:
            fields[name] = new


def _cleaned(value: Any) -> Any:
    """The same object where nothing had to be taken out. A request or a client is never touched, since it is in use;
    where its `repr` tells a secret, that text without it takes its place."""
    if isinstance(value, str):
        found = scrub(value)
        return value if found == value else found
    if isinstance(value, (bytes, bytearray)):
        text = bytes(value).decode("utf-8", "surrogateescape")
        found = scrub(text)
        return value if found == text else found.encode("utf-8", "surrogateescape")
    if isinstance(value, (list, tuple)):
        items = [_cleaned(v) for v in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if isinstance(value, dict):
        pairs = {_cleaned(k): _cleaned(v) for k, v in value.items()}
        same = all(k in pairs and pairs[k] is v for k, v in value.items())
        return value if same else pairs
    if isinstance(value, BaseException):
        scrub_exception(value)
        return value
    if hasattr(type(value), "__pydantic_fields__"):
        _clean_fields(value)
    if value is None or isinstance(value, (bool, int, float, Secret)):
        return value
    text = repr(value)
    return value if (found := scrub(text)) == text else found


_GAPS: Final = (
    re.compile("\x1b\\[[0-9;]*[A-Za-z]|[\\s\"'`+,|\\\\\u2026\u200b]"),
    re.compile(r"%0[AaDd]|%20|\\[nrt]|\\(?:x1b|u001b|033|e)\[[0-9;]*[A-Za-z]|[\s\"'`+,|\\]"),
)
"""What may stand between the pieces of a text that was wrapped, quoted again or coloured, and then encoded."""


class _Live(Struct):
    """Every secret text of this process, for as long as it lives."""

    lock: threading.Lock
    forms: dict[str, str]
    """What to look for, as it stands -> the secret's name."""
    pieces: tuple[dict[str, str], ...]
    """What to look for where the gaps were taken out, for each kind of gap."""

    def add(self, name: str, text: str) -> None:
        if len(text) < SHORTEST or text in self.forms:
            return
        forms = {form: name for form in _forms(text) if len(form) >= SHORTEST}
        with self.lock:  # replaced whole: a scrub that runs meanwhile sees the old ones
            self.forms = dict(sorted({**self.forms, **forms}.items(), key=lambda f: (-len(f[0]), f[0])))
            self.pieces = tuple(
                {**known, **{s: name for form in forms if len(s := gap.sub("", form)) >= _PIECES}}
                for gap, known in zip(_GAPS, self.pieces, strict=True)
            )

    def scrub(self, text: str) -> str:
        forms = self.forms
        if not forms or len(text) < SHORTEST:
            return text
        for form, name in forms.items():
            if form in text:
                text = text.replace(form, f"(secret {name})")
        for gap, pieces in zip(_GAPS, self.pieces, strict=True):
            short = gap.sub("", text)
            if any(piece in short for piece in pieces):
                text = _without(text, gap, pieces)
        return text


def _without(text: str, gap: re.Pattern[str], pieces: dict[str, str]) -> str:
    """`text` with the name of the secret in place of each piece, gaps within it included."""
    while True:
        kept: list[int] = []
        at = 0
        for found in gap.finditer(text):
            kept.extend(range(at, found.start()))
            at = found.end()
        kept.extend(range(at, len(text)))
        short = "".join(text[i] for i in kept)
        first = min(((short.find(p), -len(p), p) for p in pieces if p in short), default=None)
        if first is None:
            return text
        start, _, piece = first
        text = f"{text[: kept[start]]}(secret {pieces[piece]}){text[kept[start + len(piece) - 1] + 1 :]}"


def _forms(text: str) -> Iterator[str]:
    """How `text` may be written elsewhere."""
    data = _bytes(text)
    yield text
    yield from _escapes(text)
    yield from _percent(text, data)
    for inner in _base64(data):
        yield inner
        yield quote(inner, safe="")
    yield data.hex()
    yield data.hex().upper()


def _escapes(text: str) -> Iterable[str]:
    return (
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(text))[3:-3],
        repr(text)[1:-1],
        repr(_bytes(text))[2:-1],
        _html(text),
        _html(text).replace("&quot;", '"').replace("&#x27;", "'"),
    )


def _html(text: str) -> str:
    """As html.escape, whose module brings a table of every entity."""
    for character, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(character, name)
    return text


def _percent(text: str, data: bytes) -> Iterator[str]:
    for encoded in (
        quote(data, safe=""), quote(data), quote_plus(data), quote(data, safe="~!*'()"), quote(data, safe=":/?#[]@"),
    ):  # fmt: skip
        yield encoded
        yield re.sub("%[0-9A-F]{2}", lambda m: m[0].lower(), encoded)
    yield "".join(f"%{b:02X}" for b in data)
    yield "".join(f"%{b:02x}" for b in data)


def _base64(data: bytes) -> Iterator[str]:
    """The whole, and the part that does not depend on what stands before and after it, at each of the three
    alignments."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(data).decode()
        yield whole
        yield whole.rstrip("=")
    for before in range(3):
        start, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[start:end]


_LIVE: Final = _Live(threading.Lock(), {}, tuple({} for _ in _GAPS))
