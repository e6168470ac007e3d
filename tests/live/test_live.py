"""The lifecycle on a real Cloudflare account. Skipped without credentials; creates and removes its own objects.

Set EDGESPEC_LIVE_ACCOUNT (32 hex digits) and CLOUDFLARE_API_TOKEN, and know that this has never been run by the
authors: see docs/cloudflare.md.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from edgespec.plan.model import Action
from tests.e2e.conftest import TinyProject

ACCOUNT = os.environ.get("EDGESPEC_LIVE_ACCOUNT")
TOKEN = os.environ.get("CLOUDFLARE_API_TOKEN")

pytestmark = pytest.mark.skipif(
    not (ACCOUNT and TOKEN), reason="needs EDGESPEC_LIVE_ACCOUNT and CLOUDFLARE_API_TOKEN, a real account"
)


def test_apply_infer_and_destroy(tmp_path: Path) -> None:
    project = TinyProject(tmp_path / "project", tmp_path / "cache", f"live{secrets.token_hex(3)}")
    project.write_project(type="cloudflare", account=ACCOUNT)
    project.write_spec(cache={"weights": {"kv": {"pin": ["tokenizer"]}}})
    try:
        project.apply_well()
        assert all(c.action is Action.NOOP for c in project.plan().plan.changes)
        assert project.infer("tiny", "refund my money please")[0]["label"] == "refund"
    finally:
        project.apply_well(destroy=True)
    assert not project.state().records
