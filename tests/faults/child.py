"""One `edgespec` command in a process of its own, for tests that signal it: with the small Worker, and with one call
that waits.

    python -m tests.faults.child HOLD FOLDER edgespec-arguments...

Before the first request whose "METHOD path" contains HOLD it prints `held` to stdout and waits: for FOLDER/go to
appear, or for ever.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from edgespec.cli.main import main
from edgespec.providers.cloudflare.reader import Reader
from tests.faults.ground import quick


def hold(what: str, folder: Path) -> None:
    send, read, held = httpx.Client.send, Reader.send, [False]

    def wait(call: str) -> None:
        if what in call and not held[0]:
            held[0] = True
            print("held", flush=True)
            while not (folder / "go").exists():
                time.sleep(0.02)

    def sent(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        wait(f"{request.method} {request.url.path}")
        return send(client, request, **options)

    def asked(reader: Reader, place: Any, target: str, headers: Any) -> Any:
        wait(f"GET {target}")
        return read(reader, place, target, headers)

    httpx.Client.send = sent  # type: ignore[method-assign]
    Reader.send = asked  # type: ignore[method-assign]


if __name__ == "__main__":
    # A shell that runs tests in the background has them ignore it, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    where = Path(sys.argv[2])
    hold(sys.argv[1], where)
    sys.argv = ["edgespec", *sys.argv[3:]]
    with quick(where):
        main()
