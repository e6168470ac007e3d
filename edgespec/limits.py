"""Cloudflare's limits that edgespec checks, in one place, each with its source and the date it was read.

Sources: developers.cloudflare.com/workers/platform/limits (2026-07-28; script size from the changelog of 2026-09-04),
/kv/platform/limits and /r2/platform/limits (2026-11).
"""

from __future__ import annotations

from typing import Final

MIB: Final = 2**20

ISOLATE_MEMORY: Final = 128 * 10**6
"""Bytes of JavaScript heap and WebAssembly memory in one isolate (Workers limits)."""
SCRIPT_SIZE: Final = 64 * MIB
"""Bytes of all modules of a Worker, uncompressed."""
SCRIPT_NAME: Final = 54
"""Characters: a preview URL's label is `<version, 8>-<script>` and must stay under 63."""
FREE_CPU_MS: Final = 10
"""Milliseconds of CPU for one HTTP request on the free plan."""
PAID_CPU_MS: Final = 30_000
"""Milliseconds of CPU for one HTTP request on the paid plan, unless the Worker raises it."""
KV_VALUE: Final = 25 * MIB
"""Bytes of one Workers KV value."""
KV_TTL_MIN: Final = 60
"""Seconds: the least `expirationTtl`."""
KV_CACHE_TTL_MIN: Final = 30
"""Seconds: the least `cacheTtl`."""
CHUNK_MIN: Final = 64 * 1024
"""Bytes: smaller chunks would cost more reads than they save (edgespec's own rule)."""
