"""Cloudflare, or the local edge that answers as Cloudflare does: one piece of code, another base URL."""
