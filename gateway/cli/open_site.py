"""Run an operator's command on a site: open the site in this process, do the work, close it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gateway.errors import CommitterGone

if TYPE_CHECKING:
    from gateway.site.site import Site
    from gateway.site.site_view import SiteView

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


def run_on_view(folder: Path, work: Callable[[SiteView], Awaitable[T]]) -> T:
    """As `read_site`, for *work* that has to be awaited."""
    from gateway.site.site_view import open_view

    async def on_view(view: SiteView) -> T:
        return await work(view)

    with suppress(CommitterGone), open_view(folder) as view:
        if view.has_current_schema:
            return asyncio.run(on_view(view))
    return run_on_site(folder, work)


def read_site(folder: Path, read: Callable[[SiteView], T]) -> T:
    """Call *read* on the site in *folder*, without a session: nothing is written. Returns the result of *read*.

    If the journal cannot be read without a committer, as on a full disk, or was last used by another version of
    Entrepot, whose tables this one does not know, the site is opened as by `run_on_site`."""
    from gateway.site.site_view import open_view

    with suppress(CommitterGone), open_view(folder) as view:
        if view.has_current_schema:
            return read(view)

    async def work(site: Site) -> T:
        return read(site)

    return run_on_site(folder, work)
