"""The address for metrics and probes: connections that are left open keep nobody out, and none stays for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gateway.config import Address
from gateway.site.overview import CONNECTIONS_MAX, Overview
from gateway.timing import Timing, parse_timing

SHORT = parse_timing("probes.connection_seconds=0.2")


@pytest.fixture
async def opened() -> AsyncIterator[list[Overview]]:
    kept: list[Overview] = []
    yield kept
    for each in kept:
        await each.close()


async def overview(opened: list[Overview], timing: Timing) -> Address:
    async def readiness() -> tuple[bool, dict[str, str]]:
        return True, {}

    made = await Overview.open(Address("127.0.0.1", 0), lambda: b"x" * (8 << 20), lambda: (True, {}), readiness, timing)
    opened.append(made)
    return made.address


async def test_connections_that_are_left_open_keep_no_scraper_out_and_are_bounded(opened: list[Overview]) -> None:
    host, port = await overview(opened, Timing())
    strangers = [await asyncio.open_connection(host, port) for _ in range(4 * CONNECTIONS_MAX)]
    for number, (_, writer) in enumerate(strangers):
        if number % 2:
            writer.write(b"GET /metrics HTTP/1.1\r\nX-Never-Ends: ")
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/healthz") as answer:
        assert answer.status == 200
        assert opened[0].connections <= CONNECTIONS_MAX
    for _, writer in strangers:
        writer.close()


@pytest.mark.parametrize(
    "request_bytes",
    [b"", b"GET /metrics HTTP/1.1\r\nX: ", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["silent", "a head that never ends", "an answer that nobody reads"],
)
async def test_a_connection_ends_after_its_time_whatever_it_does(opened: list[Overview], request_bytes: bytes) -> None:
    host, port = await overview(opened, SHORT)
    _, writer = await asyncio.open_connection(host, port)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(request_bytes)
    while not opened[0].connections:
        await asyncio.sleep(0.005)
    while opened[0].connections:
        await asyncio.sleep(0.005)
    writer.close()


async def test_a_scraper_that_is_served_within_its_time_may_ask_again_on_its_connection(
    opened: list[Overview],
) -> None:
    host, port = await overview(opened, Timing())
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        for path in ("/metrics", "/healthz", "/readyz", "/metrics"):
            async with session.get(f"http://{host}:{port}{path}") as answer:
                assert answer.status == 200
                await answer.read()
