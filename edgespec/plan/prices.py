"""What Cloudflare asks for, in one table: USD, each with its source and the day it was read.

Sources, all read in 2026-11: developers.cloudflare.com/workers/platform/pricing/ (requests, CPU time, the plan's
price), /kv/platform/pricing/ (reads, writes, storage; every key of a bulk call is one) and /r2/pricing/ (standard
storage, class A and B, no egress). A change of a price is a change of this file alone, and the tests' figures show it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

READ: Final = "2026-11"
_WORKERS: Final = "developers.cloudflare.com/workers/platform/pricing/"
_KV: Final = "developers.cloudflare.com/kv/platform/pricing/"
_R2: Final = "developers.cloudflare.com/r2/pricing/"


class Price(Struct, frozen=True):
    """`usd` for each `per` of a meter beyond what a month `includes`."""

    name: str
    usd: float
    per: float
    includes: float
    source: str
    whole: bool = False
    """Usage beyond is billed in whole units (R2: "rounded up to the next billing unit")."""

    def list(self, amount: float) -> float:
        """Of `amount` alone, as if nothing were included."""
        return amount / self.per * self.usd

    def bill(self, amount: float) -> float:
        """Of all that an account uses in a month."""
        units = max(0.0, amount - self.includes) / self.per
        return self.usd * (-(-units // 1) if self.whole else units)


PAID_PLAN: Final = 5.0
"""USD a month for Workers Paid, once an account (workers/platform/pricing)."""
FREE_REQUESTS_A_DAY: Final = 100_000
"""What Workers Free serves; more are refused with error 1027 (workers/platform/limits)."""
MONTH_S: Final = 30 * 86400
"""A month of the estimate, in seconds."""
GB: Final = 10**9

REQUESTS: Final = Price("requests", 0.30, 1e6, 10e6, _WORKERS)
CPU_MS: Final = Price("CPU ms", 0.02, 1e6, 30e6, _WORKERS)
KV_READS: Final = Price("KV reads", 0.50, 1e6, 10e6, _KV)
KV_WRITES: Final = Price("KV writes", 5.00, 1e6, 1e6, _KV)
KV_STORAGE: Final = Price("KV GB", 0.50, GB, GB, _KV)
R2_STORAGE: Final = Price("R2 GB", 0.015, GB, 10 * GB, _R2, whole=True)
R2_CLASS_A: Final = Price("R2 class A", 4.50, 1e6, 1e6, _R2, whole=True)
R2_CLASS_B: Final = Price("R2 class B", 0.36, 1e6, 10e6, _R2, whole=True)
