"""The embedded edge: a Node process with real workerd behind Cloudflare's v4 API and R2's S3 API (edge)."""

from edgespec.local_edge.edge import EdgeStatus, Endpoint, LocalEdge

__all__ = ["EdgeStatus", "Endpoint", "LocalEdge"]
