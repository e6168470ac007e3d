from tests.e2e.conftest import build_cache, shared_edge

__all__ = ["build_cache", "shared_edge"]
