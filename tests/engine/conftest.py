from collections.abc import Iterator

import pytest

from tests.engine import wasm


@pytest.fixture(scope="session")
def engine() -> Iterator[wasm.Wasm]:
    wasm.build_if_stale()
    with wasm.start() as running:
        yield running
