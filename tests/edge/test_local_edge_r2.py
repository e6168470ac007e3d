"""R2: buckets through the v4 API, objects through boto3."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudflare
import httpx
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from edge_clients import Clients, s3_client

from edgespec.local_edge import LocalEdge

MIB = 1024 * 1024


@pytest.fixture
def bucket(clients: Clients, name: str) -> str:
    clients.cloudflare.r2.buckets.create(account_id=clients.account, name=name)
    return name


def refused(code: str, call: Any, **arguments: Any) -> int:
    """Asserts S3's error code and gives the HTTP status."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["Error"]["Code"] == code
    return int(caught.value.response["ResponseMetadata"]["HTTPStatusCode"])


def sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def test_buckets_are_made_listed_and_removed(clients: Clients, name: str) -> None:
    r2 = clients.cloudflare.r2.buckets
    made = r2.create(account_id=clients.account, name=name, location_hint="enam", storage_class="InfrequentAccess")
    assert (made.location, made.storage_class) == ("ENAM", "InfrequentAccess")
    got = r2.get(name, account_id=clients.account)
    assert (got.name, got.location, got.jurisdiction) == (name, "ENAM", "default")
    with pytest.raises(cloudflare.ConflictError, match="10004"):
        r2.create(account_id=clients.account, name=name)
    clients.s3().put_object(Bucket=name, Key="k", Body=b"v")
    with pytest.raises(cloudflare.ConflictError, match="10008"):
        r2.delete(name, account_id=clients.account)
    clients.s3().delete_object(Bucket=name, Key="k")
    r2.delete(name, account_id=clients.account)
    with pytest.raises(cloudflare.NotFoundError, match="10006"):
        r2.get(name, account_id=clients.account)


@pytest.mark.parametrize("wrong", ["ab", "a" * 64, "Upper", "under_score", "-a-", "a.b"])
def test_wrong_bucket_names_are_refused(clients: Clients, wrong: str) -> None:
    answer = clients.api("POST", "/r2/buckets", json={"name": wrong})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, 10005)


def test_buckets_are_listed_in_pages(clients: Clients, name: str) -> None:
    names = [f"{name}-{n}" for n in range(5)]
    for each in names:
        clients.cloudflare.r2.buckets.create(account_id=clients.account, name=each)
    seen: list[str] = []
    arguments: dict[str, Any] = {}
    while True:
        page = clients.cloudflare.r2.buckets.list(
            account_id=clients.account, name_contains=name, per_page=2, **arguments
        )
        if not page.buckets:
            break
        seen += [str(b.name) for b in page.buckets]
        arguments = {"start_after": seen[-1]}
    assert seen == names


def test_a_name_is_another_bucket_in_every_jurisdiction(clients: Clients, name: str) -> None:
    for jurisdiction in ("default", "eu"):
        answer = clients.api("POST", "/r2/buckets", json={"name": name}, headers={"cf-r2-jurisdiction": jurisdiction})
        assert answer.json()["result"]["jurisdiction"] == jurisdiction
    clients.s3("eu").put_object(Bucket=name, Key="k", Body=b"in the eu")
    refused("NoSuchKey", clients.s3().get_object, Bucket=name, Key="k")
    refused("NoSuchBucket", clients.s3("us").get_object, Bucket=name, Key="k")
    assert clients.api("DELETE", f"/r2/buckets/{name}").status_code == 200
    assert clients.s3("eu").get_object(Bucket=name, Key="k")["Body"].read() == b"in the eu"
    assert [b["Name"] for b in clients.s3("eu").list_buckets()["Buckets"] if b["Name"] == name] == [name]


def test_a_bucket_made_again_is_empty_and_reaches_its_worker(clients: Clients, edge: LocalEdge, bucket: str) -> None:
    binding = {"type": "r2_bucket", "name": "B", "bucket_name": bucket}
    code = "export default { async fetch(r, env) { return new Response((await env.B.get('k'))?.body ?? 'none'); } };"
    clients.upload(bucket, code, bindings=[binding])
    clients.enable(bucket)
    data = os.urandom(64)
    clients.s3().put_object(Bucket=bucket, Key="k", Body=data)
    assert clients.get(f"/w/{bucket}/").content == data
    clients.s3().delete_object(Bucket=bucket, Key="k")
    clients.cloudflare.r2.buckets.delete(bucket, account_id=clients.account)
    storage = edge.log_path.parent / "storage"
    assert [f for f in storage.rglob("*") if f.is_file() and data in f.read_bytes()] == []
    clients.cloudflare.r2.buckets.create(account_id=clients.account, name=bucket)
    assert clients.get(f"/w/{bucket}/").text == "none"
    clients.s3().put_object(Bucket=bucket, Key="k", Body=b"again")
    assert clients.get(f"/w/{bucket}/").text == "again"


def test_objects_of_any_key_with_their_metadata(clients: Clients, bucket: str) -> None:
    s3 = clients.s3()
    for key in ("artifacts/0f", "a b+c/é?&#%.txt", "x" * 1024, "a//b", "~!*'()"):
        body = os.urandom(100)
        put = s3.put_object(
            Bucket=bucket, Key=key, Body=body, ContentType="text/x-test", CacheControl="no-store", Metadata={"by": "me"}
        )
        got = s3.get_object(Bucket=bucket, Key=key)
        assert got["Body"].read() == body
        assert put["ETag"] == got["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
        assert (got["ContentType"], got["CacheControl"], got["Metadata"]) == ("text/x-test", "no-store", {"by": "me"})
        head = s3.head_object(Bucket=bucket, Key=key)
        assert (head["ContentLength"], head["Metadata"]) == (100, {"by": "me"})
        s3.delete_object(Bucket=bucket, Key=key)
        refused("404", s3.head_object, Bucket=bucket, Key=key)
    assert refused("KeyTooLongError", s3.put_object, Bucket=bucket, Key="x" * 1025, Body=b"") == 400


def test_an_empty_object(clients: Clients, bucket: str) -> None:
    clients.s3().put_object(Bucket=bucket, Key="k", Body=b"")
    assert clients.s3().get_object(Bucket=bucket, Key="k")["Body"].read() == b""


def test_put_conditions_let_one_of_many_win(clients: Clients, bucket: str) -> None:
    def create(n: int) -> bool:
        try:
            s3_client(clients.endpoint).put_object(Bucket=bucket, Key="lock", Body=b"%d" % n, IfNoneMatch="*")
        except ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 412
            assert error.response["Error"]["Code"] == "PreconditionFailed"
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(16))) == 1
    s3 = clients.s3()
    etag = s3.head_object(Bucket=bucket, Key="lock")["ETag"]
    assert refused("PreconditionFailed", s3.put_object, Bucket=bucket, Key="lock", Body=b"", IfMatch='"00"') == 412
    assert refused("PreconditionFailed", s3.put_object, Bucket=bucket, Key="new", Body=b"", IfMatch=etag) == 412
    s3.put_object(Bucket=bucket, Key="lock", Body=b"next", IfMatch=etag)
    assert refused("PreconditionFailed", s3.put_object, Bucket=bucket, Key="lock", Body=b"", IfMatch=etag) == 412


def test_get_conditions(clients: Clients, bucket: str) -> None:
    s3 = clients.s3()
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"v")["ETag"]
    assert s3.get_object(Bucket=bucket, Key="k", IfMatch=etag)["Body"].read() == b"v"
    assert refused("PreconditionFailed", s3.get_object, Bucket=bucket, Key="k", IfMatch='"00"') == 412
    assert refused("304", s3.get_object, Bucket=bucket, Key="k", IfNoneMatch=etag) == 304
    assert s3.get_object(Bucket=bucket, Key="k", IfNoneMatch='"00"')["Body"].read() == b"v"


def test_ranges(clients: Clients, bucket: str) -> None:
    s3 = clients.s3()
    s3.put_object(Bucket=bucket, Key="k", Body=bytes(range(100)))
    for header, expected in (
        ("bytes=0-9", range(10)),
        ("bytes=90-", range(90, 100)),
        ("bytes=-5", range(95, 100)),
        ("bytes=95-1000", range(95, 100)),
    ):
        got = s3.get_object(Bucket=bucket, Key="k", Range=header)
        assert got["Body"].read() == bytes(expected)
        assert got["ContentRange"] == f"bytes {expected[0]}-{expected[-1]}/100"
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert refused("InvalidRange", s3.get_object, Bucket=bucket, Key="k", Range="bytes=100-") == 416


def test_a_wrong_checksum_or_body_is_never_stored(clients: Clients, bucket: str) -> None:
    s3 = clients.s3()
    body = os.urandom(MIB)
    stored = s3.put_object(Bucket=bucket, Key="good", Body=body, ChecksumSHA256=sha256(body))
    assert stored["ChecksumSHA256"] == sha256(body)
    for size in (1, MIB):
        wrong = {"Bucket": bucket, "Key": "bad", "Body": bytes(size)}
        assert refused("BadDigest", s3.put_object, **wrong, ChecksumSHA256=sha256(b"other")) == 400
        md5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()
        assert refused("BadDigest", s3.put_object, **wrong, ContentMD5=md5) == 400
    refused("404", s3.head_object, Bucket=bucket, Key="bad")
    # A body that was changed on its way no longer has the hash that was signed.
    url = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "signed"})
    assert clients.http.put(url, content=b"anything").status_code == 200


def test_checksums_and_encodings_that_r2_refuses_are_named(clients: Clients, bucket: str) -> None:
    s3 = clients.s3()
    assert refused("NotImplemented", s3.put_object, Bucket=bucket, Key="k", Body=b"v", ChecksumAlgorithm="CRC32") == 501


def test_signatures_are_enforced(clients: Clients, bucket: str) -> None:
    endpoint = clients.endpoint
    wrong_secret = s3_client(endpoint, secret_access_key="wrong")
    assert refused("SignatureDoesNotMatch", wrong_secret.list_objects_v2, Bucket=bucket) == 403
    wrong_key = s3_client(endpoint, access_key_id="0" * 32)
    assert refused("InvalidAccessKeyId", wrong_key.list_objects_v2, Bucket=bucket) == 403
    assert clients.http.get(f"{endpoint.s3_base_url}/default/{bucket}").status_code == 403
    url = clients.s3().generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    assert clients.http.get(url).status_code == 404
    assert clients.http.get(url.replace("/k?", "/other?")).status_code == 403
    assert clients.http.get(url.replace("X-Amz-Expires=3600", "X-Amz-Expires=7200")).status_code == 403
    bearer = {"authorization": f"Bearer {endpoint.api_token.reveal()}"}
    assert clients.http.get(f"{endpoint.s3_base_url}/default/{bucket}", headers=bearer).status_code == 400


def test_lists_by_prefix_delimiter_and_page(clients: Clients, bucket: str) -> None:
    s3 = clients.s3()
    keys = sorted([*(f"a/{n}" for n in range(7)), "a/b/c", "b", "é&<x>"])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=b"v"), keys))
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 3})
    assert [o["Key"] for page in pages for o in page.get("Contents", [])] == keys
    assert s3.list_objects_v2(Bucket=bucket, Prefix="a/", StartAfter="a/4")["KeyCount"] == 3
    folders = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert [p["Prefix"] for p in folders["CommonPrefixes"]] == ["a/"]
    assert [o["Key"] for o in folders["Contents"]] == ["b", "é&<x>"]
    old = s3.get_paginator("list_objects").paginate(Bucket=bucket, PaginationConfig={"PageSize": 4})
    assert [o["Key"] for page in old for o in page.get("Contents", [])] == keys
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys]})
    assert len(answer["Deleted"]) == len(keys)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_multipart_upload_is_listed_completed_and_read(clients: Clients, bucket: str) -> None:
    s3 = clients.s3()
    parts = [os.urandom(5 * MIB), os.urandom(5 * MIB), b"the rest"]
    upload = s3.create_multipart_upload(Bucket=bucket, Key="big", ContentType="x/y")["UploadId"]
    at = {"Bucket": bucket, "Key": "big", "UploadId": upload}
    done = [
        {"PartNumber": n, "ETag": s3.upload_part(**at, PartNumber=n, Body=part)["ETag"]}
        for n, part in enumerate(parts, 1)
    ]
    assert done[0]["ETag"] == f'"{hashlib.md5(parts[0]).hexdigest()}"'
    assert [u["UploadId"] for u in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == [upload]
    assert [p["Size"] for p in s3.list_parts(**at)["Parts"]] == [len(p) for p in parts]
    with pytest.raises(cloudflare.ConflictError, match="10008"):
        clients.cloudflare.r2.buckets.delete(bucket, account_id=clients.account)
    wrong = [done[0], {"PartNumber": 2, "ETag": '"00"'}]
    assert refused("InvalidPart", s3.complete_multipart_upload, **at, MultipartUpload={"Parts": wrong}) == 400
    refused("InvalidPartOrder", s3.complete_multipart_upload, **at, MultipartUpload={"Parts": done[::-1]})
    s3.complete_multipart_upload(**at, MultipartUpload={"Parts": done})
    assert s3.get_object(Bucket=bucket, Key="big")["Body"].read() == b"".join(parts)
    middle = s3.get_object(Bucket=bucket, Key="big", Range=f"bytes={5 * MIB - 2}-{5 * MIB + 1}")["Body"].read()
    assert middle == parts[0][-2:] + parts[1][:2]
    assert s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


def test_a_multipart_upload_may_be_given_up(clients: Clients, bucket: str) -> None:
    s3 = clients.s3()
    upload = s3.create_multipart_upload(Bucket=bucket, Key="big")["UploadId"]
    at = {"Bucket": bucket, "Key": "big", "UploadId": upload}
    part = s3.upload_part(**at, PartNumber=1, Body=b"small")
    last = s3.upload_part(**at, PartNumber=2, Body=b"last")
    small = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}, {"PartNumber": 2, "ETag": last["ETag"]}]}
    assert refused("EntityTooSmall", s3.complete_multipart_upload, **at, MultipartUpload=small) == 400
    refused("BadDigest", s3.upload_part, **at, PartNumber=3, Body=b"x", ChecksumSHA256=sha256(b"y"))
    assert [p["PartNumber"] for p in s3.list_parts(**at)["Parts"]] == [1, 2]
    s3.abort_multipart_upload(**at)
    assert refused("NoSuchUpload", s3.complete_multipart_upload, **at, MultipartUpload=small) == 404
    clients.cloudflare.r2.buckets.delete(bucket, account_id=clients.account)


def test_boto3_s_own_transfer(clients: Clients, bucket: str) -> None:
    data = os.urandom(24 * MIB)
    config = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
    clients.s3().upload_fileobj(io.BytesIO(data), bucket, "big", Config=config)
    out = io.BytesIO()
    clients.s3().download_fileobj(bucket, "big", out, Config=config)
    assert out.getvalue() == data


def test_eight_chunks_of_8_mib_at_once(clients: Clients, bucket: str) -> None:
    chunks = [os.urandom(8 * MIB) for _ in range(8)]
    s3 = clients.s3()

    def put(chunk: bytes) -> str:
        digest = hashlib.sha256(chunk).hexdigest()
        s3.put_object(Bucket=bucket, Key=f"artifacts/{digest}", Body=chunk, ChecksumSHA256=sha256(chunk))
        return digest

    with ThreadPoolExecutor(4) as pool:
        digests = list(pool.map(put, chunks))
    for digest in digests:
        body = s3.get_object(Bucket=bucket, Key=f"artifacts/{digest}")["Body"].read()
        assert hashlib.sha256(body).hexdigest() == digest


def test_what_is_not_there_says_not_implemented(clients: Clients, bucket: str) -> None:
    s3 = clients.s3()
    refused("NotImplemented", s3.get_bucket_versioning, Bucket=bucket)
    refused("NotImplemented", s3.create_bucket, Bucket="another")
    refused("NotImplemented", s3.copy_object, Bucket=bucket, Key="b", CopySource=f"{bucket}/a")
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] == "auto"
    s3.head_bucket(Bucket=bucket)
    refused("404", s3.head_bucket, Bucket="nowhere")


def test_a_client_that_goes_away_in_the_middle_leaves_nothing(clients: Clients, bucket: str) -> None:
    url = clients.s3().generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "half"})

    def half() -> Any:
        yield bytes(MIB)
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError), httpx.Client(trust_env=False) as http:
        http.put(url, content=half(), headers={"content-length": str(4 * MIB)})
    refused("404", clients.s3().head_object, Bucket=bucket, Key="half")
    clients.s3().put_object(Bucket=bucket, Key="half", Body=b"whole")
