"""What the client sends again, and what the gateway runs once however often it is sent."""

from __future__ import annotations

import secrets
import time

import pytest

from gateway.engine.types import Conditions, ObjectMeta
from gateway.errors import (
    CommitterGone,
    NoSuchName,
    Refused,
    Unavailable,
)
from gateway.journal.records.tree import EntryMoved
from gateway.posix.api import Directory
from gateway.posix.bodies import BytesBody, read_all
from gateway.posix.rpc import protocol
from gateway.posix.rpc.methods import METHODS
from gateway.posix.rpc.protocol import MethodCall, RpcRequest
from gateway.timing import Timing, parse_timing
from tests.clocks import AheadClock, ManualClock
from tests.posix.connecting import connected, posted
from tests.posix.journal_view import head_of, records_after

# --- once -------------------------------------------------------------------------------------------------------------


async def test_a_rename_whose_answer_is_lost_is_one_rename(served, place, line, api):
    """Run again, it would move what somebody else has put there since."""
    async with connected(served, line.url) as far:
        before = head_of(served.dir)
        line.suffer(b"rename", times=3)
        await far.rename(place, b"d", b"e", directory=True)
        assert line.suffered == 3
        moves = [each for each in records_after(served.dir, before) if isinstance(each, EntryMoved)]
        assert len(moves) == 1
        assert isinstance(await api.look(place, b"e"), Directory)
        with pytest.raises(NoSuchName):
            await api.look(place, b"d")


async def test_every_change_is_made_once_however_often_its_answer_is_lost(served, place, line, api):
    async with connected(served, line.url) as far:
        line.suffer(b"POST /.entrepot/", times=2)
        await far.make_bucket(f"{place}-2")
        line.suffer(b"POST /.entrepot/", times=2)
        await far.mkdir(place, b"made")
        line.suffer(b"POST /.entrepot/", times=2)
        assert await far.remove(place, [b"x"], must_exist=True) == [None]
        line.suffer(b"POST /.entrepot/", times=2)
        await far.move(place, b"d/y", f"{place}-2", b"y")
        line.suffer(b"POST /.entrepot/", times=2)
        await far.put(place, b"new", BytesBody(b"bytes"), 5, ObjectMeta(), Conditions(if_none_match=("*",)))
        line.suffer(b"POST /.entrepot/", times=2)
        await far.rmdir(place, b"made")
        assert line.suffered == 2
    assert await read_all(await api.open(place, b"new")) == b"bytes"
    assert (await api.look(f"{place}-2", b"y")).size == 3


def packed(*calls: MethodCall, key: bytes = b"", known_store: str = "") -> bytes:
    return protocol.pack_request(RpcRequest(list(calls), idempotency_key=key, known_store=known_store))


async def test_any_worker_knows_what_another_one_answered(served, place, api):
    """Each request here is a connection of its own, and goes to any of the two."""
    rename = MethodCall("rename", METHODS["rename"].encode(place, b"d", b"e", True))
    body = packed(rename, key=secrets.token_bytes(16), known_store=api._store)
    answers = [await posted(served, "verbs", body, f"attempt={number}" if number > 1 else "") for number in range(1, 9)]
    assert {each.body for each in answers} == {answers[0].body}
    assert protocol.unpack_response(answers[0].body).results == ((protocol.OK, None),)
    other = await posted(served, "verbs", packed(rename, key=secrets.token_bytes(16)))
    assert protocol.unpack_response(other.body).results[0][:2] == (protocol.REFUSED, "NoSuchName")


async def test_a_memory_that_was_lost_says_that_it_does_not_know(served, place):
    body = packed(MethodCall("mkdir", (place, b"new")), key=secrets.token_bytes(16), known_store="another store")
    answer = protocol.unpack_response((await posted(served, "verbs", body, "attempt=2")).body)
    assert answer.results[0][:2] == (protocol.REFUSED, "CommitterGone")
    answer = protocol.unpack_response((await posted(served, "verbs", body)).body)
    assert answer.results == ((protocol.OK, None),), "the first try is made whoever one knows"


async def test_what_may_be_done_twice_is_begun_anew_where_nobody_knows(api, place, monkeypatch):
    send, tries = api._send_calls, 0

    async def unknown(calls, stop, parallel=False):
        nonlocal tries
        tries += 1
        return [CommitterGone("nobody knows")] if tries == 1 else await send(calls, stop, parallel)

    monkeypatch.setattr(api, "_send_calls", unknown)
    assert await api.begin_upload(place, b"up", ObjectMeta())
    for once in (api.mkdir(place, b"new"), api.rename(place, b"d", b"e", directory=True)):
        tries = 0
        with pytest.raises(CommitterGone):
            await once
        assert tries == 1


async def test_bytes_that_may_be_replaced_are_sent_anew_where_nobody_knows_others_are_not(api, place, monkeypatch):
    post, unknown = api._transport.post, CommitterGone("nobody knows")
    refused = protocol.pack_response(
        protocol.VERSION, "", [protocol.pack([protocol.REFUSED, *protocol.encode_error(unknown)])]
    )
    tries = 0

    async def forgets(*arguments, **options):
        nonlocal tries
        tries += 1
        return refused if tries == 1 else await post(*arguments, **options)

    monkeypatch.setattr(api._transport, "post", forgets)
    assert (await api.put(place, b"new", BytesBody(b"12"), 2, ObjectMeta())).size == 2
    assert tries == 2
    tries = 0
    with pytest.raises(CommitterGone):
        await api.put(place, b"other", BytesBody(b"12"), 2, ObjectMeta(), Conditions(if_none_match=("*",)))
    assert tries == 1


async def test_a_change_that_was_lost_before_it_came_is_made_by_the_next_try(served, place, line):
    async with connected(served, line.url) as far:
        for change in (far.mkdir(place, b"new"), far.rename(place, b"d", b"e", directory=True)):
            line.suffer(b"POST /.entrepot/verbs", times=2, says=b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")
            await change
            assert line.suffered == 2


# --- a gateway that has too much to do --------------------------------------------------------------------------------


async def test_a_gateway_that_says_slow_down_is_asked_again_when_it_said(served, place, line):
    body = b"<Error><Code>SlowDown</Code><Message>no</Message></Error>"
    head = b"HTTP/1.1 503 Slow Down\r\nRetry-After: 1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    clock = ManualClock(time.time())
    async with connected(served, line.url, Timing(clock=clock)) as far:
        line.suffer(b"POST /.entrepot/verbs", times=1, says=head + body)
        await far.look(place, b"x")
        assert line.suffered == 1
    assert clock.now >= 1


async def test_bytes_that_did_not_come_whole_are_sent_again(served, place, line, api):
    body = b"<Error><Code>IncompleteBody</Code><Message>no</Message></Error>"
    says = b"HTTP/1.1 400 No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
    async with connected(served, line.url) as far:
        line.suffer(b"POST /.entrepot/write", times=1, says=says)
        await far.put(place, b"new", BytesBody(b"12"), 2, ObjectMeta())
        assert line.suffered == 1
    assert (await api.look(place, b"new")).size == 2


async def test_an_answer_without_bounds_is_refused_before_it_comes(served, place, line):
    says = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (1 << 40)
    async with connected(served, line.url) as far:
        line.suffer(b"POST /.entrepot/verbs", times=1, says=says)
        with pytest.raises(Refused, match="a response of"):
            await far.look(place, b"x")


class SuspendedClock(AheadClock):
    """Its machine is suspended for an hour while somebody sleeps."""

    async def sleep(self, seconds: float) -> None:
        self.slept_seconds = 3600.0
        await super().sleep(seconds)


async def test_a_change_is_not_sent_again_by_a_machine_that_was_suspended_meanwhile(served, place, line):
    """The gateway was not, and may have forgotten that it made the change."""
    async with connected(served, line.url, Timing(clock=SuspendedClock())) as far:
        line.suffer(b"POST /.entrepot/verbs", times=1000)
        with pytest.raises(Unavailable, match="does not answer"):
            await far.rename(place, b"d", b"e", directory=True)
        assert line.suffered == 1


async def test_one_that_does_not_answer_at_all_is_told_so(served, place, line):
    async with connected(served, line.url, parse_timing("files.retry_seconds=0.3")) as far:
        line.suffer(b"POST /.entrepot/verbs", times=1000)
        with pytest.raises(Unavailable, match="does not answer"):
            await far.look(place, b"x")
        assert line.suffered >= 1
