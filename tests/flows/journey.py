"""The journey's site: its config as it is edited, what its commands tell, and its legs.

On a leg something is done while clients read and write, and while processes are killed; then the clients stop, and
everything that was touched is compared with the ledger. What is waited for is always a state.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.endpoint import run_entrepot
from tests.flows.cargo import Cargo, patiently
from tests.flows.killing import Served
from tests.flows.ledger import Broken
from tests.flows.two_shores import Here, There
from tests.flows.voyage import Voyage
from tests.ports import free_port
from tests.servers.running import S3Server

T = TypeVar("T")
CLIENTS, PAUSE_SECONDS = 4, 0.04
ACKNOWLEDGED = 20
"""Writes that are acknowledged in a leg behind its last kill."""
WITHIN_SECONDS = 300.0
"""How long a state is waited for: a backend that was in trouble is left alone for up to a minute."""
LOOK_SECONDS = 0.2
MISUSED = 2
"""The exit status of a command line that is wrong."""


class Journey:
    """One site, the *seed* deciding what is written and who is killed, and when."""

    def __init__(self, folder: Path, server: S3Server, seed: str) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.served = Served(folder, free_port(following=1))  # the metrics are served beside it
        self.served.expected = ("is not available: ", "is not in use yet: ")  # also where the machine is too busy
        self.voyage = Voyage(self.served, seed, CLIENTS, PAUSE_SECONDS)
        self.cargo = Cargo(self.served, seed)
        self.here, self.there = Here(folder / "blocks"), There(server)

    async def begin(self) -> None:
        """Make the site as `init` does, with one local backend, and serve it."""
        self.served.found()
        secret = self.folder / "cloud.secret"
        secret.touch(0o600)
        secret.write_text(self.there.server.secret_key)
        await self.voyage.begin()
        await asyncio.to_thread(lambda: patiently(lambda: self.cargo.s3().create_bucket(Bucket="cargo")))

    @contextmanager
    def told(self) -> Iterator[None]:
        """Whatever goes wrong is told with what the site says of itself."""
        try:
            yield
        except BaseException:
            told = run_entrepot("status", str(self.folder), check=False)
            print(f"{told.stdout}{told.stderr}\n{self.served.tail()[-20_000:]}", file=sys.stderr)
            raise

    # ---- legs --------------------------------------------------------------------------------------------------------

    async def leg(self, work: Coroutine[Any, Any, None]) -> None:
        """Do *work* while clients are busy and processes die; then nobody writes, all settles, and all is compared."""
        self.voyage.round += 1
        began = time.monotonic()
        await self.voyage.under_load(self._struck(work))
        with self.voyage.told():
            await self.voyage.look()
        self.served.check_log()
        print(f"{work.__name__}: {time.monotonic() - began:.1f} s", flush=True)

    async def _struck(self, work: Coroutine[Any, Any, None]) -> None:
        doing = asyncio.ensure_future(work)
        try:
            for _ in range(self.chance.randint(1, 3)):
                await asyncio.wait([doing], timeout=self.chance.uniform(0, 2))
                self.served.kill(self.voyage.plan(), self.chance)
                await asyncio.sleep(self.chance.uniform(0, 0.3))
                await self.served.until_ready()
            await doing
        finally:
            doing.cancel()
        await self.voyage.acknowledged(ACKNOWLEDGED)

    async def until(self, look: Callable[[], T], what: str) -> T:
        """What *look* answers, asked again until that is true. It may block."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while not (found := await asyncio.to_thread(look)):
            if time.monotonic() > deadline:
                raise Broken(f"waited {WITHIN_SECONDS:g} s for {what}")
            await asyncio.sleep(LOOK_SECONDS)
        return found

    async def settled(self) -> dict[str, Any]:
        """What `status` says once there is nothing left to be done. Nobody writes meanwhile."""

        def look() -> dict[str, Any] | None:
            told = self.status()
            return told if told["settled"] and not told["backlog"] else None

        return await self.until(look, "everything to lie where it should")

    # ---- commands, which block ---------------------------------------------------------------------------------------

    def tell(self, *arguments: str) -> Any:
        """What a command answers. Asked again where it fails, since somebody may have been killed below it."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while (done := run_entrepot(*arguments, "--json", check=False)).returncode:
            if done.returncode == MISUSED or time.monotonic() > deadline:
                raise Broken(f"{arguments} → {done.returncode}\n{done.stdout}\n{done.stderr}")
            time.sleep(LOOK_SECONDS)
        return json.loads(done.stdout)

    def on_site(self, *arguments: str) -> Any:
        return self.tell(*arguments, "--site", str(self.folder))

    def status(self) -> dict[str, Any]:
        told = self.tell("status", str(self.folder))
        assert isinstance(told, dict)
        return told

    def uses(self) -> dict[str, dict[str, Any]]:
        """What each backend holds."""
        return {use["name"]: use for use in self.status()["placement"]}

    def places(self, key: str) -> list[list[str]]:
        """Where the blocks of an object lie, each set of them in the order of a read."""
        told = self.on_site("explain", f"s3://cargo/{key}")
        return [[each["backend"] for each in group["order"]] for group in told["lies"]["groups"]]

    def edit(self, *edits: tuple[str, str], more: str = "") -> None:
        """Put the second where the first stands in the config, and *more* behind it; whole at once, as editors do."""
        config = self.folder / "entrepot.toml"
        text = config.read_text()
        for line, instead in edits:
            assert text.count(line) == 1, f"{line!r} stands {text.count(line)} times in\n{text}"
            text = text.replace(line, instead)
        new = config.with_suffix(".new")
        new.write_text(text + more)
        os.replace(new, config)

    def section(self, title: str) -> str:
        """As it stands in the config, to the next empty line."""
        _, head, rest = (self.folder / "entrepot.toml").read_text().partition(f"[{title}]")
        return head + rest.partition("\n\n")[0]

    def mended(self) -> bool:
        """Whether every copy is good. If not, those that are bad are told to whoever mends them."""
        return run_entrepot("fsck", str(self.folder), "--read", "--mend", check=False).returncode == 0

    def reload(self) -> None:
        """Until every process runs what the file says."""
        self.tell("reload", str(self.folder))
