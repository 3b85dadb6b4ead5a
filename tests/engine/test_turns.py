"""One user with many bodies under way does not keep another one waiting."""

from __future__ import annotations

import asyncio

from gateway.engine.engine import Engine
from gateway.engine.types import Caller
from gateway.site.site import Site
from tests.engine.bodies import put

SIZE = 300_000


async def test_bodies_of_users_take_turns_where_bytes_in_flight_are_scarce(
    site: Site, engine: Engine, root: Caller
) -> None:
    budget, stored = site.storage.writer.budget, list[str]()
    other = root._replace(user="other", user_id=root.user_id + 1)  # a second root user

    async def one(caller: Caller, key: bytes) -> None:
        await put(engine, caller, key, bytes(SIZE))
        stored.append(caller.user)

    await budget.acquire(budget.limit)
    bodies = [asyncio.create_task(one(root, b"%d" % number)) for number in range(8)]
    while budget.waiting_bytes < 8 * SIZE:
        await asyncio.sleep(0)
    bodies.append(asyncio.create_task(one(other, b"other")))
    while budget.waiting_bytes < 9 * SIZE:
        await asyncio.sleep(0)
    budget.release(SIZE)  # room for one at a time
    await asyncio.gather(*bodies)
    budget.release(budget.limit - SIZE)
    assert stored.index("other") <= 2, f"{stored.index('other')} of the other user's came first"
