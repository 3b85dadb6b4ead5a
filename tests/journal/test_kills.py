"""The committer killed in mid-batch, again and again, under several client processes."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gateway.journal.client import Journal
from gateway.journal.history.replay import replay, verify
from gateway.journal.paths import JournalPaths
from gateway.journal.session_commands import OpenSession
from gateway.journal.sqlite.store import SqliteStore
from tests.journal.memory_store import MemoryStore
from tests.journal.process import found
from tests.journal.test_histories import assert_same_truth

CLIENTS = 4
SUCCESSOR_SECONDS = 2.0


async def _client(folder: Path, name: str, seconds: float, told: Path) -> None:
    """Sends commands of which every run shows, 32 at a time, and writes down each answer and the longest wait."""
    journal = await Journal.open(folder, name)
    until = time.monotonic() + seconds
    answered: dict[str, int] = {}
    longest = 0.0

    async def send(lane: int) -> None:
        nonlocal longest
        number = 0
        while time.monotonic() < until:
            kind = f"{name}/{lane}/{number}"
            number += 1
            began = time.monotonic()
            answered[kind] = await journal.send(OpenSession(kind))
            longest = max(longest, time.monotonic() - began)

    await asyncio.gather(*(send(lane) for lane in range(32)))
    told.write_text(json.dumps({"answered": answered, "longest": longest}))
    await journal.close()


def run_client(folder: Path, name: str, seconds: float, told: Path) -> None:
    asyncio.run(_client(folder, name, seconds, told))


class Supervisor:
    """Starts a committer whenever there is none, and kills it at random moments."""

    def __init__(self, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.journal.process", str(folder), "30", str(1 << 20), "0"]
        self._running: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self.kills = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            self._running = subprocess.Popen(self._command)
            self._running.wait()

    def kill(self) -> None:
        assert self._running is not None
        self._running.kill()
        self.kills += 1

    def stop(self) -> None:
        self._stopping = True
        assert self._running is not None
        self._running.terminate()
        self._thread.join()


@pytest.mark.alone  # its clients give up on a machine that does much else
def test_a_committer_killed_in_mid_batch_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    found(tmp_path)
    supervisor = Supervisor(tmp_path)
    told = [tmp_path / f"told-{each}" for each in range(CLIENTS)]
    spawn = multiprocessing.get_context("spawn")
    clients = [
        spawn.Process(target=run_client, args=(tmp_path, f"client-{each}", 10.0, path))
        for each, path in enumerate(told)
    ]
    for client in clients:
        client.start()
    chance = random.Random(1)
    while any(client.is_alive() for client in clients):
        time.sleep(chance.uniform(0.6, 1.6))
        if sum(path.exists() for path in told) == 0:
            supervisor.kill()
    for client in clients:
        client.join()
        assert client.exitcode == 0
    supervisor.stop()
    assert supervisor.kills >= 5

    store = SqliteStore(JournalPaths(tmp_path).database)
    verify(store)
    again = MemoryStore()
    replay(store, again)
    assert_same_truth(store, again)
    rows = store._loading.execute("SELECT kind, id FROM session WHERE kind LIKE 'client-%/%'").fetchall()
    stood = dict(rows)
    assert len(stood) == len(rows), "a command ran twice"
    for path in told:
        client_told = json.loads(path.read_text())
        assert len(client_told["answered"]) > 100
        for kind, answer in client_told["answered"].items():
            assert stood.pop(kind) == answer, "its answer is not what was done"
        # Starting Python on a busy machine takes most of this; a hang would be ten seconds and more.
        assert client_told["longest"] < SUCCESSOR_SECONDS + 3
    assert not stood, "what nobody was answered for stands"
    store.close()


@pytest.mark.alone  # it measures how long a start takes
def test_a_successor_serves_within_two_seconds(tmp_path: Path) -> None:
    found(tmp_path)
    supervisor = Supervisor(tmp_path)

    async def waits() -> list[float]:
        journal = await Journal.open(tmp_path, "worker")
        taken = []
        for _ in range(5):
            await journal.send(OpenSession("before"))
            supervisor.kill()
            began = time.monotonic()
            await journal.send(OpenSession("behind"))
            taken.append(time.monotonic() - began)
        await journal.close()
        return taken

    taken = asyncio.run(waits())
    supervisor.stop()
    assert min(taken) < SUCCESSOR_SECONDS, taken
