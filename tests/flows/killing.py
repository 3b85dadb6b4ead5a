"""A site that is served for real, whose processes are killed with SIGKILL, and started again where nobody does."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.blocks.types import block_id_of
from gateway.journal.history.replay import replay, verify
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.store import SqliteStore
from tests.endpoint import (
    ACCESS_KEY,
    ENTREPOT,
    SECRET_KEY,
    Endpoint,
    announced,
    command_environment,
    run_entrepot,
    stop,
)  # fmt: skip
from tests.files import files_below
from tests.flows.dying import kill_all, processes_of, ticks_at_start
from tests.flows.ledger import Broken
from tests.flows.wire import Where
from tests.journal.memory_store import MemoryStore
from tests.journal.test_histories import assert_same_truth
from tests.logs import untorn, whole_lines
from tests.new_sites import new_site
from tests.site.running import watch

LEASE_SECONDS = 3.0
"""Short, so that what killed sessions left is swept while the test looks on."""
PATIENCE_SECONDS = 120.0
LOG_BYTES_MAX = 256 << 20
TAIL_LINES = 2_000
PLANS = (
    ("committer",), ("worker",), ("all",), ("keeper",), ("supervisor",), ("committer", "worker"), ("committer",),
    ("worker", "worker"), ("all",), ("supervisor", "committer"), ("keeper", "committer"),
)  # fmt: skip
"""Who is killed at one moment. The first three are what every run kills, however short."""


class Served:
    """One site, over all the lives that it has."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        """*port*: where it listens in each of them; 0: wherever there is room."""
        self.folder = folder
        self.port = port
        self.expected: tuple[str, ...] = ()
        """What lines of the log may tell of without being faults."""
        self.where = Where()
        self.log = folder.with_name("served.log")
        self.kills: Counter[str] = Counter()
        self._killed: set[int] = set()
        self._out = folder.with_name("served.out")
        self._process: subprocess.Popen[bytes] | None = None
        self._logged = 0

    def found(self) -> None:
        """Make the site."""
        new_site(self.folder)
        config = self.folder / "entrepot.toml"
        text = config.read_text()
        assert "lease_seconds = 10.0" in text
        config.write_text(text.replace("lease_seconds = 10.0", f"lease_seconds = {LEASE_SECONDS}"))

    async def start(self) -> None:
        """Serve it; returns once it is ready."""
        self._spawn()
        await self.until_ready()

    async def until_ready(self) -> None:
        """Wait until requests are answered, starting the supervisor again as often as it was killed."""
        while True:
            process = self._running()
            if process.poll() is None:
                with suppress(AssertionError):
                    url = await asyncio.to_thread(announced, process, self._out, self.log)
                    self.where.host, _, port = url.removeprefix("http://").partition(":")
                    self.where.port = int(port)
                    if await self._well():
                        return
            if process.poll() is None:
                raise Broken(f"the site is not ready after {PATIENCE_SECONDS:g} s\n{self.tail()}")
            if process.returncode != -signal.SIGKILL:
                raise Broken(f"the supervisor ended with {process.returncode}\n{self.tail()}")
            self._spawn()

    def restart(self) -> None:
        """Start the supervisor again if it is dead; does not wait."""
        if self._running().poll() is not None:
            self._spawn()

    def stop(self) -> None:
        """Ask it to finish. Raises `Broken` if it does not end well."""
        if (status := stop(self._running())) != 0:
            raise Broken(f"the supervisor ended with {status}\n{self.tail()}")

    def kill(self, plan: Sequence[str], chance: random.Random) -> None:
        """Kill everybody of *plan* at once: a role, `worker` (any), or `all`. Who is not there at the moment is not
        killed."""
        pids = self._pids()
        doomed: list[int] = []
        for asked in plan:
            fitting = [name for name in pids if asked == "all" or name.startswith(asked)]
            chosen = fitting if asked == "all" else chance.sample(fitting, min(1, len(fitting)))
            doomed += [pids.pop(name) for name in chosen]
            if chosen:
                self.kills[asked] += 1
        chance.shuffle(doomed)
        self._killed = set(doomed)
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None and self._process.pid in doomed:
            self._process.wait()

    def end(self) -> None:
        """Kill whatever is left of it, so that no test leaves anything behind."""
        kill_all(self.folder, self._process)

    # ---- looking ---------------------------------------------------------------------------------------------------

    def check_log(self) -> None:
        """The log since the last look tells of no mistake of the server's own. Raises `Broken`."""
        with self.log.open("rb") as log:
            log.seek(self._logged)
            new = log.read()
        self._logged += new.rfind(b"\n") + 1
        if self._logged > LOG_BYTES_MAX:
            os.truncate(self.log, 0)  # its writers append
            self._logged = 0
        faults = [line for line in whole_lines(new) if is_fault(line)]
        faults = [line for line in faults if not any(each in line for each in self.expected)]
        if faults:
            raise Broken("the server wrote what no kill may cause:\n" + "\n".join(faults[:5]))

    def fsck(self, *options: str) -> dict[str, Any]:
        """What `entrepot fsck` finds; nothing may be wrong or wasted, but for what the sweeper has yet to take."""
        done = run_entrepot("fsck", str(self.folder), "--json", *options, check=False)
        if done.returncode or not done.stdout:
            raise Broken(f"fsck → {done.returncode}\n{done.stdout[:4000]}\n{done.stderr[-2000:]}")
        told: dict[str, Any] = json.loads(done.stdout)
        unexpected = set(told["kinds"]) - {"block-unnamed"}
        if unexpected:
            raise Broken(f"fsck finds {unexpected}: {told['findings'][:5]}")
        return told

    async def until_swept(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until `entrepot gc` finds that nothing could go, and fsck that nothing is wasted."""
        deadline = time.monotonic() + seconds
        while True:
            told = json.loads(
                (await asyncio.to_thread(run_entrepot, "gc", str(self.folder), "--dry-run", "--json")).stdout
            )
            if not told["freed"] and not any(told["blocks"].values()):
                break
            if time.monotonic() > deadline:
                raise Broken(f"the keeper left {told} for {seconds:g} s\n{self.tail()}")
            await asyncio.sleep(0.3)
        told = await asyncio.to_thread(self.fsck)
        if told["kinds"]:
            raise Broken(f"fsck finds waste where the keeper is done: {told['findings'][:5]}")

    def check_gone(self) -> None:
        """Every process of the site ends, whoever of the others was killed. Raises `Broken`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while left := list(processes_of(self.folder)):
            if time.monotonic() > deadline:
                told = [(pid, b" ".join(command).decode()) for pid, command in left]
                raise Broken(f"processes that do not end: {told}")
            time.sleep(0.05)

    def check_stopped(self) -> None:
        """Nobody serves it: its blocks on disk are those of its tables, and its journal replays into these. Raises
        `Broken`."""
        blocks = self.folder / "blocks"
        files = {path.relative_to(blocks).as_posix() for path in files_below(blocks)}
        self.check_tables(key for key in files if not key.startswith(".entrepot/"))
        if unfinished := [key for key in files if key.startswith(".entrepot/") and "/new-" in key]:
            raise Broken(f"files that were never finished: {unfinished[:5]}")

    def check_tables(self, keys: Iterable[str]) -> None:
        """Nobody serves it: the blocks of its tables are those with these *keys* and those that are still inline
        values, and its journal replays into its tables. Raises `Broken`."""
        stored = {block_id_of(key) for key in keys}
        database = JournalPaths(self.folder / "journal").database
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as tables:
            named = {row[0] for row in tables.execute("SELECT id FROM block")}
            stored |= {row[0] for row in tables.execute("SELECT block FROM inline_value")}
        tables.close()
        if stored != named:
            raise Broken(f"{len(stored - named)} blocks have no row, {len(named - stored)} rows no block")
        store, again = SqliteStore(database), MemoryStore()
        try:
            verify(store)
            replay(store, again)
            assert_same_truth(store, again)
        finally:
            store.close()

    # ---- how -------------------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        with self._out.open("wb") as out, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*ENTREPOT, "serve", str(self.folder), "--listen", f"127.0.0.1:{self.port}"],
                env=command_environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process

    async def _well(self) -> bool:
        """Whether the dead are replaced, everybody is well, and a commit goes through; False once the supervisor is
        dead."""
        endpoint = Endpoint("", ACCESS_KEY, SECRET_KEY, "us-east-1", self.folder, self.log)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._running().poll() is None and time.monotonic() < deadline:
            with suppress(OSError, AssertionError):
                status, told = await asyncio.to_thread(watch, endpoint, "/readyz")
                if status == 200 and self._killed.isdisjoint(each["pid"] for each in told["processes"].values()):
                    return True
            await asyncio.sleep(0.05)
        return False

    def _pids(self) -> dict[str, int]:
        """The supervisor and its children, also while they start."""
        process = self._process
        if process is None or process.poll() is not None:
            return {}
        found = {"supervisor": process.pid}
        began = ticks_at_start(process.pid)
        for pid, command in processes_of(self.folder):
            # A process of an earlier life may still be ending.
            if b"-m" in command and ticks_at_start(pid) >= began:
                found[command[command.index(b"-m") + 2].decode()] = pid
        return found

    def tail(self) -> str:
        """The log's last lines, but for those of requests."""
        lines = whole_lines(self.log.read_bytes())[-TAIL_LINES:]
        return "\n".join(line for line in lines if '"event":"request"' not in line)


def is_fault(line: str) -> bool:
    """Whether a line of the log tells of a mistake of the server's own. While processes are killed, 503 is none, nor
    is a line whose writer was killed in its midst; that which stands behind it is looked at by itself."""
    torn, line = untorn(line)
    try:
        fields = json.loads(line)
    except ValueError:
        return True
    if '"level":"error"' in torn or '"traceback"' in torn:
        return True
    if fields["event"] == "request":
        return bool(fields["status"] >= 500 and fields["status"] not in {501, 503})
    return bool(fields["level"] == "error" or "traceback" in fields)
