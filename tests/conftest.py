"""Hypothesis without a clock: the machine's speed decides nothing."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("edgespec", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgespec")

# A shell that runs the tests in the background has them ignore ctrl-C, and every process that they start with them.
signal.signal(signal.SIGINT, signal.default_int_handler)
