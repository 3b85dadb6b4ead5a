"""How much of the committer's loop one command takes, and who is answered in between: counted in turns of the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.identity.users import AddTenant, AddUser
from gateway.journal.commands import HEAVY_WEIGHT, weight_of
from gateway.journal.rows import max_rows
from gateway.journal.server.batch import ROWS_PER_TURN, CommandResult
from gateway.journal.server.group_commit import BATCH_ROWS, GroupCommitter
from gateway.journal.server.reserve import Reserve
from gateway.journal.server.row_cache import RowCache
from gateway.journal.session_commands import COMMANDS as SESSIONS
from gateway.journal.session_commands import FoundSite, OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import Batch
from gateway.namespace.commands.buckets import MakeBucket
from gateway.namespace.commands.complete import CompleteUpload, WantedPart
from gateway.namespace.commands.objects import DeleteObject, DeleteObjects, Doomed, PutObject
from gateway.namespace.commands.prepare_completion import prepare_completion
from gateway.namespace.commands.uploads import CreateUpload, DropParts, PutPart
from gateway.namespace.version_ids import parse_upload_id
from gateway.site.commands import COMMANDS
from gateway.timing import Timing

DEEP = b"a/" * 500


class Watched(SqliteStore):
    """Remembers how many rows each batch changed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.changed: list[int] = []

    def write(self, batch: Batch) -> None:
        self.changed.append(sum(map(len, batch.puts.values())) + sum(map(len, batch.drops.values())))
        super().write(batch)


class Loop:
    """A committer on this test's loop. `turn` counts the loop's turns, `answered` lists commands as they are done."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "journal.db"
        self.turn = 0
        self.answered: list[Any] = []
        self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def start(self) -> None:
        """Begin with nothing in memory."""
        self.store = Watched(self._folder / "journal.db")
        reserve = Reserve(self._folder / "reserve", 1 << 20)
        self.committing = GroupCommitter(self.store, {**SESSIONS, **COMMANDS}, reserve, self._answer, timing=Timing())
        self._running = asyncio.create_task(self.committing.run())

    async def stop(self) -> None:
        self.committing.stop()
        await self._running
        self.store.close()

    async def end(self) -> None:
        self._ticking.cancel()
        await self.stop()

    def _answer(self, answers: list[CommandResult]) -> None:
        for answer in answers:
            self.answered.append(answer.job.command)
            answer.job.waiter(answer)

    def send(self, command: Any) -> asyncio.Future[CommandResult]:
        answer: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self.committing.add_internal(command, answer.set_result)
        return answer

    async def run(self, *commands: Any) -> list[Any]:
        answers = await asyncio.gather(*map(self.send, commands))
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return [answer.value for answer in answers]


@pytest.fixture
async def loop(tmp_path: Path) -> AsyncIterator[Loop]:
    made = Loop(tmp_path)
    made.start()
    await made.run(FoundSite("ab" * 16, "here"))
    (tenant,) = await made.run(AddTenant("t"))
    for name in ("alice", "bob"):
        (user,) = await made.run(AddUser(name, "t", False, "", b"", ""))
        await made.run(MakeBucket(name, user, name, tenant, "here", 1))
    yield made
    await made.end()


def put(key: bytes, bucket: str = "alice", user: int = 0) -> PutObject:
    return PutObject(bucket, key, user, True, 0, "e" * 32, (), (), 1, b"", b"", b"")


async def test_deep_keys_load_a_bounded_number_of_rows_a_turn(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [b"%d/" % n + DEEP + b"k" for n in range(6)]
    await loop.run(*map(put, keys))
    await loop.stop()
    loaded: Counter[int] = Counter()
    load = RowCache.load

    def counted(cache: RowCache, wanted: Any) -> None:
        loaded[loop.turn] += sum(map(max_rows, wanted))
        load(cache, wanted)

    monkeypatch.setattr(RowCache, "load", counted)
    loop.start()
    await loop.run(*(DeleteObject("alice", key, 0, True) for key in keys))
    assert sum(loaded.values()) > 6 * 500
    assert max(loaded.values()) <= 2 * ROWS_PER_TURN


async def test_a_turn_runs_one_heavy_command(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [b"%d/" % n + DEEP + b"k" for n in range(8)]
    ran: Counter[int] = Counter()
    run = COMMANDS[PutObject]

    def counted(asked: Any, tx: Any) -> Any:
        value = run(asked, tx)
        ran[loop.turn] += 1
        return value

    await loop.stop()
    monkeypatch.setitem(COMMANDS, PutObject, counted)  # type: ignore[arg-type]
    loop.start()
    await loop.run(*map(put, keys))
    assert sum(ran.values()) == 8
    assert max(ran.values()) == 1
    assert max(loop.store.changed) < BATCH_ROWS + 2 * 1024 + 8


async def test_a_light_command_is_answered_before_the_heavy_ones_that_came_first(loop: Loop) -> None:
    keys = [b"%d/" % n + DEEP + b"k" for n in range(30)]
    await loop.run(*map(put, keys))
    await loop.stop()
    loop.start()
    loop.answered.clear()
    heavy = [loop.send(DeleteObjects("alice", 1, True, (Doomed(key),))) for key in keys]
    light = loop.send(put(b"mine", "bob"))
    opened = loop.send(OpenSession("x"))
    await asyncio.gather(light, opened, *heavy)
    before = [type(command) for command in loop.answered].index(PutObject)
    assert before <= 3, f"{before} of 30 heavy commands were answered before it"


async def test_a_users_heavy_command_waits_for_one_of_each_other_user(loop: Loop) -> None:
    heavy = [loop.send(put(b"%d/" % n + DEEP + b"k", user=1)) for n in range(20)]
    other = put(DEEP + b"k", "bob", user=2)
    await asyncio.gather(loop.send(other), *heavy)
    puts = [command for command in loop.answered if isinstance(command, PutObject)]
    assert puts.index(other) <= 5, "20 of another user's came first"


async def test_a_completion_of_many_parts_changes_a_few_rows_and_its_parts_go_in_slices(loop: Loop) -> None:
    count = 2_000
    head = ("alice", b"k", 0, True)
    (upload,) = await loop.run(CreateUpload(*head, "", "", b"", b""))
    parts = []
    for number in range(1, count + 1):
        etag = f"{number:032x}"
        parts.append(WantedPart(number, etag))
        await loop.run(PutPart(*head, upload, number, 5 << 20, etag, (), (), 1, number, ""))
    reads = ReadStore(loop.path)
    asked = CompleteUpload(*head, upload, tuple(parts))
    ready = await prepare_completion(reads, asked)
    assert ready is not None
    assert not ready.slices
    assert weight_of(asked) >= count
    assert HEAVY_WEIGHT < weight_of(ready.completion) < count, "it carries many bytes, but looks at no part"
    loop.store.changed.clear()
    await loop.run(ready.completion)
    assert sum(loop.store.changed) < 20
    number = parse_upload_id(upload)
    for at in range(0, count, 500):
        await loop.run(DropParts("alice", b"k", number, tuple(range(at + 1, at + 501))))
    assert max(loop.store.changed) < 520
    assert reads.query("SELECT count(*) FROM part") == [(0,)]
    reads.close()
