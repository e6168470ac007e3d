"""Hypothesis without a clock: the machine's speed decides nothing."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("edgespec", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgespec")
