"""Which calls the SDKs make again: those of boto3, and that the Cloudflare SDK's own retries are off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import botocore.awsrequest
import botocore.exceptions
import botocore.httpsession
import httpx
import pytest

from edgespec.address import Address
from edgespec.providers.base import ProviderError, StoppedError, WrongAccountError
from edgespec.providers.cloudflare.account import Account, Endpoints, api_errors, missing_is_fine, uncertain
from edgespec.providers.cloudflare.pace import TRIES, Pace
from edgespec.providers.cloudflare.reader import Reader
from edgespec.providers.cloudflare.s3 import s3_client
from edgespec.secret import Secret

URL = "https://account.example"
ADDRESS = Address("worker", "a")
Answer = int | Exception
REFUSED = botocore.exceptions.EndpointConnectionError(endpoint_url=URL)
LATE = botocore.exceptions.ReadTimeoutError(endpoint_url=URL)
CLOSED = botocore.exceptions.ConnectionClosedError(endpoint_url=URL)


class R2:
    """Answers in turn, and then with 200."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> None:
        self.asked: list[str] = []
        self.waits: list[float] = []
        self.bodies: list[bytes] = []

        def send(session: Any, request: Any) -> Any:
            at = len(self.asked)
            self.asked.append(request.method)
            self.bodies.append(request.body.read())  # as sending does: the next try has to rewind it
            answer = answers[at] if at < len(answers) else 200
            if isinstance(answer, Exception):
                raise answer
            headers = botocore.awsrequest.HeadersDict({"Retry-After": "30"} if answer == 429 else {})
            made = botocore.awsrequest.AWSResponse(request.url, answer, headers, None)
            made._content = b"" if answer == 200 else b"<Error><Code>X</Code><Message>m</Message></Error>"
            return made

        monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", send)
        now = [0.0]

        def wait(seconds: float) -> bool:
            self.waits.append(seconds)
            now[0] += seconds
            return False

        self.pace = Pace(burst=float("inf"), rate=float("inf"), clock=lambda: now[0], wait=wait, jitter=lambda: 0.5)
        secret = Secret("key", "a-secret-key")
        self.client = s3_client(URL, "id", secret, self.pace)

    def put(self, **conditions: str) -> None:
        self.client.put_object(Bucket="b", Key="k", Body=b"body", **conditions)


@pytest.mark.parametrize("answer", [500, 502, 503, LATE, CLOSED, REFUSED, 429])
def test_an_object_is_put_again(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    r2 = R2(monkeypatch, answer, answer)
    r2.put()
    assert r2.asked == ["PUT"] * 3 and r2.bodies == [b"body"] * 3
    assert len(r2.waits) >= 2


@pytest.mark.parametrize("answer", [500, 502, LATE, CLOSED])
@pytest.mark.parametrize("condition", [{"IfNoneMatch": "*"}, {"IfMatch": '"etag"'}])
def test_a_conditional_write_that_may_have_been_done_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, condition: dict[str, str]
) -> None:
    """It would meet its own object, and take it for another's."""
    r2 = R2(monkeypatch, answer)
    with pytest.raises((botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError)):
        r2.put(**condition)
    assert r2.asked == ["PUT"]


@pytest.mark.parametrize("answer", [429, REFUSED])
def test_a_conditional_write_that_was_not_done_is_made_again(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    r2 = R2(monkeypatch, answer)
    r2.put(IfNoneMatch="*")
    assert len(r2.asked) == 2


def test_r2s_retry_after_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    r2 = R2(monkeypatch, 429)
    r2.put()
    assert 30 <= sum(r2.waits) < 32


def test_patience_with_r2_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    r2 = R2(monkeypatch, *[500] * 20)
    with pytest.raises(botocore.exceptions.ClientError):
        r2.put()
    assert len(r2.asked) == TRIES


@pytest.mark.parametrize("answer", [400, 403, 404, 412])
def test_a_refusal_by_r2_is_final(monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    r2 = R2(monkeypatch, answer)
    with pytest.raises(botocore.exceptions.ClientError):
        r2.put()
    assert r2.asked == ["PUT"]


# --- the v4 API ------------------------------------------------------------------------------------------------------

Handle = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    made = Account(Endpoints("a" * 32, f"{URL}/client/v4", Secret("token", "a-secret-token")))
    monkeypatch.setattr(Pace, "spread", lambda self, seconds: 0.0)
    return made


def answering(monkeypatch: pytest.MonkeyPatch, handle: Handle) -> list[str]:
    asked: list[str] = []

    def send(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        asked.append(request.method)
        answer = handle(request)
        answer.request = request
        return answer

    def unreachable(*_: Any) -> Any:
        raise OSError

    monkeypatch.setattr(httpx.Client, "send", send)
    monkeypatch.setattr(Reader, "send", unreachable)
    return asked


def failing(status: int, *codes: int) -> Handle:
    errors = [{"code": c, "message": "no"} for c in codes]
    return lambda _: httpx.Response(status, json={"success": False, "errors": errors})


def create(account: Account) -> None:
    account.once.kv.namespaces.create(account_id=account.id, title="t")


def test_the_sdk_makes_no_retries_of_its_own(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    assert account.sdk.max_retries == account.once.max_retries == 0
    asked = answering(monkeypatch, failing(500))
    with pytest.raises(ProviderError) as caught, api_errors(ADDRESS, "Creating"):
        create(account)
    assert asked == ["POST"] and not caught.value.nothing_done
    with pytest.raises(ProviderError), api_errors(ADDRESS, "Listing"):
        account.get("/workers/scripts")
    assert asked == ["POST", *["GET"] * TRIES]


def test_what_is_certain_to_have_changed_nothing(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    certain = {400: True, 403: True, 404: True, 408: False, 409: False, 500: False}
    for status, nothing_done in certain.items():
        answering(monkeypatch, failing(status, 1))
        for begun in (False, True):
            with pytest.raises(ProviderError) as caught, api_errors(ADDRESS, "Creating") as call:
                call.begun = begun  # an earlier call of the same step was carried out
                create(account)
            assert caught.value.nothing_done is (nothing_done and not begun), status


def test_a_connection_that_was_never_made_changed_nothing(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    asked = answering(monkeypatch, refuse)
    with pytest.raises(ProviderError) as caught, api_errors(ADDRESS, "Creating"):
        create(account)
    assert caught.value.nothing_done and len(asked) == TRIES


def test_a_run_told_to_stop_makes_no_call(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, failing(500))
    account.pace.stop.set()
    with pytest.raises(StoppedError) as caught, api_errors(ADDRESS, "Creating"):
        create(account)
    assert caught.value.nothing_done and not asked


@pytest.mark.parametrize(("status", "code"), [(403, 9109), (404, 7003), (400, 7003), (404, 7000)])
def test_another_account_is_never_a_missing_object(
    account: Account, monkeypatch: pytest.MonkeyPatch, status: int, code: int
) -> None:
    answering(monkeypatch, failing(status, code))
    with pytest.raises(WrongAccountError), api_errors(ADDRESS, "Deleting"), missing_is_fine():
        account.sdk.kv.namespaces.delete("id", account_id=account.id)


def test_what_is_gone_is_deleted(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, failing(404, 10013))
    with api_errors(ADDRESS, "Deleting"), missing_is_fine():
        account.sdk.kv.namespaces.delete("id", account_id=account.id)


def test_which_ends_leave_it_open_whether_it_was_done(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    import cloudflare

    for status, open_ in {400: False, 404: False, 409: True, 500: True, 502: True}.items():
        answering(monkeypatch, failing(status))
        with pytest.raises(cloudflare.APIError) as caught:
            create(account)
        assert uncertain(caught.value) is open_, status
