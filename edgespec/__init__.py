"""Terraform for small AI models at the edge: plan and apply model specs to Cloudflare's Workers, R2 and KV."""

__version__ = "0.1.0"
