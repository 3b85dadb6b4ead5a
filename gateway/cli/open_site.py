"""Run an operator's command on a site: open the site in this process, do the work, close it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from gateway.site.site import Site

T = TypeVar("T")


def run_on_site(
    folder: Path, work: Callable[[Site], Awaitable[T]], *, with_storage: bool = False, strict: bool = True
) -> T:
    """Open the site in *folder*, await *work* on it, and close it. Returns the result of *work*.

    *with_storage*: also open the site's backends. With *strict*, a backend that cannot be opened is an error; without,
    a placeholder replaces it."""

    async def opened() -> T:
        from gateway.site.site import Site

        async with await Site.open(folder, kind="cli", with_storage=with_storage, strict=strict) as site:
            return await work(site)

    return asyncio.run(opened())


def in_async(read: Callable[[Site], T]) -> Callable[[Site], Awaitable[T]]:
    """Wrap *read*, a function that does not wait, as work for `run_on_site`."""

    async def work(site: Site) -> T:
        return read(site)

    return work
