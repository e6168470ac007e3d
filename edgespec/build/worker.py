"""`python -m edgespec.build.worker`: runs one task in a process of its own.

A request comes in as one line of JSON. Lines of JSON go out: `{"said": {...}}` while it runs, and at last
`{"finished": [...]}` with the problems, if any. What tools print goes to stderr. When the input ends, whoever asked is
gone, and so is this.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable
from typing import IO, Any

from edgespec.build.events import BuildEvent
from edgespec.build.executor import Request, perform
from edgespec.diagnostics import Diagnostic, EdgespecError, Severity, SourceRange
from edgespec.records import as_dict


def encode_problems(problems: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    return [as_dict(p) for p in problems]


def decode_problems(documents: Iterable[dict[str, Any]]) -> tuple[Diagnostic, ...]:
    return tuple(_problem(d) for d in documents)


def _problem(document: dict[str, Any]) -> Diagnostic:
    source = document["source"]
    return Diagnostic(
        **{
            **document,
            "severity": Severity(document["severity"]),
            "source": SourceRange(**source) if source else None,
            "at": tuple(document["at"]),
        }
    )


def main() -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not come among the events
    lock = threading.Lock()
    request = Request.decode(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()

    def tell(event: BuildEvent) -> None:
        _write(out, lock, {"said": as_dict(event)})

    try:
        perform(request, tell)
    except EdgespecError as e:
        _write(out, lock, {"finished": encode_problems(e.diagnostics)})
        return
    _write(out, lock, {"finished": []})


def _write(out: IO[str], lock: threading.Lock, document: dict[str, Any]) -> None:
    with lock:
        out.write(json.dumps(document) + "\n")
        out.flush()


def _interrupt(*_: object) -> None:
    """As ctrl-C: stages stop their tools on the way out."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_input() -> None:
    while os.read(0, 1024):  # the descriptor: a thread in the buffered stream would hold up the interpreter's end
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
