"""What every HTTP client of edgespec's says of certificates."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit


def trust(url: str) -> ssl.SSLContext | bool:
    """What httpx is to take for `verify`: the usual authorities for https. For a plain address it would read them all
    for nothing; the context that it gets there trusts nobody."""
    return True if urlsplit(url).scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
