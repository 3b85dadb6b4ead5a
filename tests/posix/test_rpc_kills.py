"""Workers and committers are killed while a file system over HTTP changes the tree."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from gateway.engine.types import Conditions, ObjectMeta
from gateway.errors import CommitterGone, EntrepotError, NoSuchName, SessionExpired, Unavailable
from gateway.posix.bodies import BytesBody, read_all
from gateway.posix.rpc.client import RpcClient
from gateway.posix.rpc.endpoint import EndpointOptions, resolve_endpoint
from tests.endpoint import Endpoint, started
from tests.new_sites import new_site
from tests.site.running import processes

pytestmark = pytest.mark.slow

STEPS, STEPS_BETWEEN = 96, 16
NOT_KNOWN = (CommitterGone, SessionExpired, Unavailable)


class Killer:
    """Kills some process of a gateway a moment after every few steps that its client has made."""

    def __init__(self, endpoint: Endpoint, names: str) -> None:
        self._endpoint = endpoint
        self._names = re.compile(names)
        self._draw = random.Random(7)
        self._left = STEPS_BETWEEN
        self._timers: list[threading.Timer] = []
        self.killed = 0

    def step(self) -> None:
        """The client has made one more."""
        self._left -= 1
        if not self._left:
            self._left = STEPS_BETWEEN
            self._timers.append(threading.Timer(self._draw.uniform(0, 0.02), self._kill))
            self._timers[-1].start()

    def _kill(self) -> None:
        found = [facts["pid"] for name, facts in processes(self._endpoint).items() if self._names.match(name)]
        with suppress(ProcessLookupError, IndexError):
            os.kill(self._draw.choice(found), signal.SIGKILL)
            self.killed += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._timers:
            each.join()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    new_site(tmp_path / "site")
    config = tmp_path / "site" / "entrepot.toml"
    config.write_text(re.sub(r"(?m)^lease_seconds = .*$", "lease_seconds = 2.0", config.read_text()))
    return tmp_path / "site"


@pytest.mark.parametrize("names", ["worker", "worker|committer"])
async def test_a_rename_is_made_once_or_is_said_not_to_be_known(site, names):
    """One that was made twice would find nothing the second time, and one that was lost would leave the name."""
    with started(site, ["--workers", "2"]) as (running, _):
        options = EndpointOptions(endpoint=running.url, key=running.access_key, secret=running.secret_key)
        api = await RpcClient.connect(resolve_endpoint(options))
        await api.make_bucket("bay")
        await api.put("bay", b"0/x", BytesBody(b"bytes"), 5, ObjectMeta())
        at, unknown = 0, 0
        with Killer(running, names) as killer:
            for step in range(1, STEPS + 1):
                try:
                    await api.rename("bay", b"%d" % at, b"%d" % step, directory=True)
                except NOT_KNOWN:
                    unknown += 1
                    if not await stands(api, b"%d/x" % step):
                        continue
                at = step
                killer.step()
        assert killer.killed > 1
        assert unknown <= killer.killed
        assert await read_all(await api.open("bay", b"%d/x" % at)) == b"bytes"
        with pytest.raises(NoSuchName):
            await api.look("bay", b"%d" % (at - 1))
        await api.close()


async def stands(api: RpcClient, key: bytes) -> bool:
    while True:
        try:
            await api.look("bay", key)
        except NoSuchName:
            return False
        except NOT_KNOWN:
            await asyncio.sleep(0.1)
        else:
            return True


async def test_a_file_is_created_once_and_what_was_written_is_there(site):
    """A write whose answer was lost and that was made again would find its own file and say that it exists."""
    with started(site, ["--workers", "2"]) as (running, _):
        options = EndpointOptions(endpoint=running.url, key=running.access_key, secret=running.secret_key)
        api = await RpcClient.connect(resolve_endpoint(options))
        await api.make_bucket("bay")
        written: dict[bytes, bytes] = {}

        async def create(number: int) -> None:
            key, data = b"%04d" % number, os.urandom(random.Random(number).choice([10, 100_000, 3 << 20]))
            with suppress(*NOT_KNOWN):
                await api.put("bay", key, BytesBody(data), len(data), ObjectMeta(), Conditions(if_none_match=("*",)))
                written[key] = data
                killer.step()

        with Killer(running, "worker") as killer:
            for at in range(0, STEPS, 8):
                await asyncio.gather(*[create(number) for number in range(at, at + 8)])
        assert killer.killed > 1
        assert len(written) > STEPS // 2
        for key, data in written.items():
            assert await again(lambda key=key: reading(api, key)) == data
        await api.close()


async def reading(api: RpcClient, key: bytes) -> bytes:
    return await read_all(await api.open("bay", key))


async def again(ask) -> bytes:
    """What *ask* answers, once a gateway is there again."""
    for _ in range(5):
        with suppress(*NOT_KNOWN):
            return await ask()
    raise EntrepotError("nobody answers")
