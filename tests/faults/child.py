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
from tests.faults.ground import quick


def hold(what: str, folder: Path) -> None:
    send, held = httpx.Client.send, [False]

    def waiting(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        if what in f"{request.method} {request.url.path}" and not held[0]:
            held[0] = True
            print("held", flush=True)
            while not (folder / "go").exists():
                time.sleep(0.02)
        return send(client, request, **options)

    httpx.Client.send = waiting  # type: ignore[method-assign]


if __name__ == "__main__":
    # A shell that runs tests in the background has them ignore it, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    where = Path(sys.argv[2])
    hold(sys.argv[1], where)
    sys.argv = ["edgespec", *sys.argv[3:]]
    with quick(where):
        main()
