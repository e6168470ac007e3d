"""What a bucket holds, by ListObjectsV2 pages that are read without boto3."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from edgespec.artifact import KEY_PREFIX
from edgespec.providers.cloudflare.account import Account

_S3: Final = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def list_objects(account: Account, bucket: str, jurisdiction: str) -> dict[str, int] | None:
    """SHA-256 -> bytes of every blob; None where a page had no good answer, whatever the reason."""
    found = list_keys(account, bucket, jurisdiction, KEY_PREFIX)
    return None if found is None else {key.removeprefix(KEY_PREFIX): size for key, size in found.items()}


def list_keys(account: Account, bucket: str, jurisdiction: str, prefix: str) -> dict[str, int] | None:
    """Key -> bytes of every object whose key begins with `prefix`, in the order of keys; None as above."""
    found: dict[str, int] = {}
    query = {"prefix": prefix}
    while True:
        page = account.s3_list(jurisdiction, bucket, query)
        if page is None:
            return None
        try:
            more = _read(page, found)
        except (ElementTree.ParseError, TypeError, ValueError):  # cut off, or not a list
            return None
        if more is None:
            return found
        query["continuation-token"] = more


def _read(page: bytes, found: dict[str, int]) -> str | None:
    """Adds a page to `found`; the token of the next one. Raises for what is not a whole page."""
    root = ElementTree.fromstring(page)  # noqa: S314
    if root.tag != f"{_S3}ListBucketResult":
        raise ValueError(root.tag)
    for item in root.iterfind(f"{_S3}Contents"):
        key, size = item.findtext(f"{_S3}Key"), item.findtext(f"{_S3}Size")
        found[str(key)] = int(size or "")
    if root.findtext(f"{_S3}IsTruncated") != "true":
        return None
    token = root.findtext(f"{_S3}NextContinuationToken")
    if not token:
        raise ValueError("a page without its successor")
    return token
