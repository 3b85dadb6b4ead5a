"""A delete that an S3 server answers with success counts only if nothing is behind that success."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from backends import errors
from backends.base import Marker
from backends.s3.backend import S3
from tests.backends.conftest import OpenS3
from tests.backends.contract import SITE, key, put
from tests.servers.between import Between, Forward, Heard, answer, between, refusal
from tests.servers.running import S3Server

VALUE = b"x" * 100_000


async def honest(request: Heard, forward: Forward) -> bytes | None:
    """The rule that changes nothing."""
    return await forward(request)


@pytest.fixture
async def way(moto_server: S3Server) -> AsyncIterator[Between]:
    async with between(moto_server) as standing:
        yield standing


@pytest.fixture
async def backend(way: Between, open_s3: OpenS3) -> S3:
    opened = await open_s3(way.server, prefix="p")
    await put(opened, key(1), VALUE)
    return opened


def answering_deletes(way: Between, reply: bytes) -> None:
    """Deletes are answered so, and change nothing."""

    async def rule(request: Heard, forward: Forward) -> bytes | None:
        return reply if request.method == "DELETE" else await forward(request)

    way.rule = rule


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (refusal("200 OK", "InternalError", "We encountered an internal error"), errors.Unavailable, "InternalError"),
        (refusal("200 OK", "AccessDenied"), errors.Denied, "AccessDenied"),
        (refusal("200 OK", "SlowDown"), errors.Unavailable, "fewer requests"),
        (refusal("200 OK", "NeverHeardOf"), errors.Unavailable, "NeverHeardOf"),
        (answer("200 OK", b"<html><body>Please log in</body></html>"), errors.Unavailable, "an unexpected body"),
        (answer("200 OK", b"Please log in"), errors.BackendError, "bucket"),
        (answer("202 Accepted", b"<later/>"), errors.Unavailable, "an unexpected body"),
        (answer("202 Accepted", b"later, perhaps"), errors.BackendError, "bucket"),
        (refusal("403 Forbidden", "AccessDenied"), errors.Denied, "AccessDenied"),
        (refusal("404 Not Found", "NoSuchBucket"), errors.Misconfigured, "no such bucket"),
        (answer("503 Service Unavailable"), errors.Unavailable, "503"),
    ],
)
async def test_a_delete_that_is_answered_with_an_error_behind_any_status_has_failed(
    way: Between, backend: S3, reply: bytes, kind: type[errors.BackendError], words: str
) -> None:
    answering_deletes(way, reply)
    with pytest.raises(kind, match=words):
        await backend.delete(key(1))
    way.rule = honest
    assert await backend.get(key(1)) == VALUE
    await backend.delete(key(1))
    with pytest.raises(errors.NotFound):
        await backend.get(key(1))


@pytest.mark.parametrize(
    "reply",
    [answer("204 No Content"), answer("200 OK"), refusal("404 Not Found", "NoSuchKey")],
)
async def test_a_delete_is_done_where_nothing_is_behind_its_success(way: Between, backend: S3, reply: bytes) -> None:
    answering_deletes(way, reply)
    await backend.delete(key(1))


async def test_many_deletes_run_at_once(way: Between, backend: S3) -> None:
    under_way, most = 0, 0

    async def slow(request: Heard, forward: Forward) -> bytes | None:
        nonlocal under_way, most
        under_way, most = under_way + 1, max(most, under_way + 1)
        while most < 16:
            await asyncio.sleep(0.001)
        under_way -= 1
        return answer("204 No Content")

    way.rule = slow
    await asyncio.gather(*(backend.delete(key(n)) for n in range(16)))
    assert most == 16


async def test_a_marker_whose_put_is_answered_with_an_error_behind_a_success_is_not_claimed(
    way: Between, backend: S3
) -> None:
    async def rule(request: Heard, forward: Forward) -> bytes | None:
        return refusal("200 OK", "InternalError") if request.method == "PUT" else await forward(request)

    way.rule = rule
    with pytest.raises(errors.Unavailable, match="InternalError"):
        await backend.claim(Marker(SITE, 3, 1))
    way.rule = honest
    assert await backend.marker() is None


async def test_a_put_that_is_answered_with_an_error_behind_a_success_is_not_confirmed(
    way: Between, backend: S3
) -> None:
    async def rule(request: Heard, forward: Forward) -> bytes | None:
        return refusal("200 OK", "InternalError") if request.method == "PUT" else await forward(request)

    way.rule = rule
    with pytest.raises(errors.Corrupted, match="no ETag"):
        await put(backend, key(2), VALUE)
