"""New sites for tests, made quickly. Each test run makes one template site for each sealing mode, and each test gets a
copy of it. A committer may run in a thread of the test's own process. Tests of `entrepot init`, and tests that need
sites with different site ids, run the command instead."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gateway.config import load
from gateway.journal.paths import JournalPaths
from gateway.journal.server.server import CommitterSettings, Server, hold_lock, open_store
from gateway.site.admin.create_site import create_site
from gateway.site.commands import COMMANDS
from gateway.site.paths import journal_folder

ACCESS_KEY = "TESTROOTACCESSKEY000"
SECRET_KEY = "test/root+secret=key0123456789abcdefghij"
"""The credentials of the root user of every site that tests make."""
TEMPLATES = "ENTREPOT_TEST_TEMPLATES"
"""The environment variable that names the folder in which a test run keeps its template sites."""
_NOT_COPIED = shutil.ignore_patterns("desk-*", "*.sock", "socket", "reserve", "answered-*")
"""Files that a site's processes make again when they start."""


def new_site(folder: Path, sealing: str = "aes-256-gcm") -> Path:
    """Make *folder* a new site by copying this run's template. All copies have one site id, one master key and one
    root user. Answers *folder*."""
    copy_site(_template(sealing), folder)
    return folder


def copy_site(source: Path, target: Path) -> None:
    """Copy the folder of a stopped site, except the files that its processes make again when they start. Among these
    are the write-ahead logs, which are empty while the site is stopped."""
    shutil.copytree(source, target, ignore=_NOT_COPIED, dirs_exist_ok=True)


def _template(sealing: str) -> Path:
    """The template site with this sealing mode. The first caller in a test run makes it."""
    base = Path(os.environ[TEMPLATES])
    base.mkdir(parents=True, exist_ok=True)
    made = base / sealing
    with (base / f"{sealing}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            half = base / f"{sealing}.half"
            making = threading.Thread(target=lambda: asyncio.run(_create(half, sealing)))
            making.start()  # in a thread of its own, since the caller may run on an event loop
            making.join()
            half.rename(made)
    return made


async def _create(folder: Path, sealing: str) -> None:
    await create_site(folder, mode=sealing, access_key=ACCESS_KEY, secret=SECRET_KEY)


@contextmanager
def committer_in_thread(folder: Path) -> Iterator[None]:
    """Run the committer of the site in *folder* in a thread until the `with` block ends. Clients that open the site
    meanwhile then start no committer process."""
    paths = JournalPaths(journal_folder(folder, load(folder)))
    with ExitStack() as held:
        held.enter_context(hold_lock(paths))
        store = open_store(paths)
        held.callback(store.close)
        committer = _Committer(Server(store, COMMANDS, paths, CommitterSettings()), paths)
        held.enter_context(committer.running())
        yield


class _Committer:
    """A committer's server and the thread that runs it."""

    def __init__(self, server: Server, paths: JournalPaths) -> None:
        self._server = server
        self._paths = paths
        self._listening = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        stop = asyncio.Event()
        thread = threading.Thread(target=self._run, args=(loop, stop), name="committer", daemon=True)
        thread.start()
        assert self._listening.wait(60), "the committer's thread does not listen"
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(60)
            loop.close()

    def _run(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        loop.run_until_complete(self._serve(stop))

    async def _serve(self, stop: asyncio.Event) -> None:
        serving = asyncio.create_task(self._server.run(stop))
        while not serving.done() and not self._paths.socket().exists():
            await asyncio.sleep(0.002)
        self._listening.set()
        await serving
