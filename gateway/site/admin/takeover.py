"""Take over the backends from another copy of this site's folder: the work of `entrepot takeover`.

Theory of operation
-------------------
Two copies of a site's folder cannot both use the same backends (`fencing`). The copy whose fence the backends have goes
on, and the other one ends. An operator may decide that the other one is to go on. This module compares the history of
this folder with the one that the backends have and, if the operator confirms, makes this folder's history the valid
one.

**States of a backend**, as seen from this folder (`BackendStamp.state`):

- `unstamped`: its marker has no fence.
- `ours`: its marker has a fence of this folder's history, or of one whose claim has ended.
- `parted`: its marker has a fence of another history. Only a takeover changes that: it makes the backend `ours`.
- `away`: it cannot be reached, or its marker is not this site's in this incarnation. It is left alone, and compared
  with the journal when it is next used.

**A takeover** has three steps, all made by this process:

1. A pin keeps what dies in this history after the last common record, for `journal.fork_grace_hours`.
2. A new token is drawn whose counter is above every credible one in the fences. Its record also lists the nonces of the
   other history's tokens: their claim has ended, so this history may replace their fences.
3. Each backend that can be reached is stamped with the new token.

**Invariants.** No record of this folder is lost, since its journal is only appended to. The other copy's records stay
in its own folder. That copy ends within seconds, and may be taken over in turn. What its records name is kept for the
grace: its own blocks have ids of sessions that this journal does not know, which only `gc` would delete, and not before
the grace has passed; blocks that both histories know, and that die in this one, are kept by the pin.

**Crashes.** After step 1: the pin expires by itself. After step 2: the fences on the backends belong to a claim that
has ended, and the next start replaces them. Between two stamps of step 3: the next start stamps the other backends.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from backends import errors as backend_errors
from backends.base import LINEAGE_MAX, Backend, Fence, Marker
from gateway import failpoints
from gateway.errors import Misconfigured
from gateway.journal.paths import JournalPaths
from gateway.journal.server.server import NONCE_BYTES
from gateway.journal.session_commands import DrawToken
from gateway.journal.whereabouts import FORK_PIN
from gateway.site.admin.lost_objects import lost_backends
from gateway.site.admin.object_addresses import touched_addresses
from gateway.site.serve_lock import is_served
from gateway.site.storage.agreement import ActiveElsewhere, RestoredElsewhere, require_active_here
from gateway.site.storage.backend_factory import load_driver, open_backend
from gateway.site.storage.fencing import Fencing, Relation, contains, head, lineage
from gateway.site.storage.keyring import JournalTables
from gateway.site.storage.marker_guard import check_marker
from gateway.site.storage.open_backends import close_all
from gateway.timing import Timing
from gateway.topology import BackendPlace

if TYPE_CHECKING:
    from gateway.site.site import Site

COUNTER_STEPS = 1 << 32
"""How far the counter of another copy's token may be ahead of this journal's. A greater one was drawn by no committer,
and is ignored: a store that forges it must not be able to use the numbers up. Tokens are compared by their nonces; the
counter is for people."""


class BackendStamp(NamedTuple):
    """Which history one backend has."""

    backend: str
    state: Literal["ours", "unstamped", "parted", "away"]
    """See the head of this module."""
    counter: int = 0
    """The counter of the token in the marker; 0 if there is none."""
    number: int = 0
    """The last record of the journal that the fence's process had, when it stamped the backend."""
    at_ns: int = 0
    """When it stamped the backend, by its wall clock."""
    why: str = ""
    """Why the backend is `away`."""


class HistoryComparison(NamedTuple):
    """This folder's history compared with the one that the backends have."""

    diverged: bool
    """Whether a backend has the fence of another history. If not, there is nothing to take over."""
    common: int
    """The number of the last record that both histories have; this folder's last record if they have not diverged."""
    common_ns: int
    """The time of that record."""
    exact: bool
    """Whether *common* is certain. It is not if too many committers have started since."""
    own_records: int
    """How many records this folder has after the common one."""
    other_records: int
    """How many records the other history has after it, at least."""
    touched: tuple[str, ...]
    """Addresses of buckets and objects that this folder's records after the common one touch."""
    more: bool
    """Whether they may touch others, which are not listed."""
    backends: tuple[BackendStamp, ...]
    counter: int
    """The counter of the token with which this folder took over; 0 if it did not."""


class CommonRecord(NamedTuple):
    """The last record that two histories share."""

    number: int
    exact: bool
    """Whether the number is certain."""


async def take_over(site: Site, *, confirmed: bool) -> HistoryComparison:
    """Compare this folder's history with the one that the backends have. If *confirmed*, and if they have diverged,
    make this folder's history the valid one. *site* is opened without its block storage.

    Raises `Misconfigured` if the site is served, if the backends agree (`agreement`) that it was restored elsewhere in
    a later incarnation, or if the other copy claims a backend at the same time."""
    site.require_writable()
    if is_served(site.folder):
        raise Misconfigured(f"{site.folder} is being served, so its backends have its own token: nothing to take over")
    places = _backends_in_use(site)
    markers = _Markers(site.store, site.timing)
    try:
        stamps = tuple([await markers.read(place) for place in places.values()])
        require_active_here(places, markers.restored)
        fences = markers.other_fences()
        comparison = await _compare(site, fences, stamps)
        if confirmed and comparison.diverged:
            comparison = comparison._replace(counter=await _end_other_claim(site, comparison.common, fences))
            await markers.stamp_all()
        return comparison
    finally:
        await markers.close()


def _backends_in_use(site: Site) -> dict[str, BackendPlace]:
    """Return the backends of the config that were not given up, by name."""
    lost = lost_backends(site.store)
    return {name: place for name, place in site.config.topology(site.folder).backends.items() if name not in lost}


class _Markers:
    """Opens the site's backends, and reads and stamps their markers."""

    def __init__(self, rows: JournalTables, timing: Timing) -> None:
        self._rows = rows
        self._timing = timing
        self._fencing = Fencing(rows, lambda: 0, timing.clock, stamps=True)
        self._opened: list[tuple[Backend, Marker]] = []
        self.restored: dict[str, ActiveElsewhere] = {}
        """By name, the backends whose marker names a later incarnation of this site."""

    async def read(self, place: BackendPlace) -> BackendStamp:
        """Open *place* and return which history its marker has."""
        seconds = self._timing.backends.open_seconds
        try:
            await load_driver(place)
            async with asyncio.timeout(seconds):
                backend = await open_backend(place, writes_much=False, make=False, timing=self._timing)
                try:
                    marker = await check_marker(backend, _backend_id(self._rows, place.name), self._rows)
                except BaseException:
                    await close_all([backend])
                    raise
        except TimeoutError:
            return BackendStamp(place.name, "away", why=f"no response within {seconds:g} s")
        except backend_errors.BackendError as error:
            if isinstance(error, RestoredElsewhere):
                self.restored[place.name] = error
            return BackendStamp(place.name, "away", why=error.message)
        self._opened.append((backend, marker))
        fence = marker.fence
        if fence is None:
            return BackendStamp(place.name, "unstamped")
        state: Literal["ours", "parted"] = "parted" if self._is_of_other_history(fence) else "ours"
        return BackendStamp(place.name, state, fence.counter, fence.number, fence.at_ns)

    def other_fences(self) -> list[Fence]:
        """Return the fences of other histories, as they were read."""
        fences = [marker.fence for _, marker in self._opened if marker.fence is not None]
        return [fence for fence in fences if self._is_of_other_history(fence)]

    def _is_of_other_history(self, fence: Fence) -> bool:
        return self._fencing.classify(fence) is Relation.DIVERGED

    async def stamp_all(self) -> None:
        """Stamp the backends with this journal's current token. The next start stamps those that fail. Raises
        `Misconfigured` if the other copy stamps one at the same time."""
        for backend, marker in self._opened:
            wanted = self._fencing.with_fence(marker)
            if wanted is None:
                continue
            try:
                await backend.claim(wanted)
            except backend_errors.OwnedByAnotherSite as error:
                raise Misconfigured(
                    f"{error}: the other copy of this folder is still in use. It ends within seconds; then run this "
                    "command again"
                ) from error
            except backend_errors.BackendError:
                continue

    async def close(self) -> None:
        await close_all(backend for backend, _ in self._opened)


def _backend_id(rows: JournalTables, name: str) -> int:
    """Return the backend's id in the journal; 0, which no backend has, if the journal does not know it yet."""
    found = rows.query("SELECT id FROM backend WHERE name = ?", (name,))
    return int(found[0][0]) if found else 0


async def _compare(site: Site, fences: list[Fence], stamps: tuple[BackendStamp, ...]) -> HistoryComparison:
    """Compare the journal with the *fences* of other histories."""
    last = head(site.store).number
    if not fences:
        return HistoryComparison(False, last, _read_time_ns(site.store, last), True, 0, 0, (), False, stamps, 0)
    common, exact = min(common_record(site.store, fence) for fence in fences)
    database = JournalPaths(site.journal_path).database
    touched, more = await asyncio.to_thread(touched_addresses, database, common)
    return HistoryComparison(
        diverged=True,
        common=common,
        common_ns=_read_time_ns(site.store, common),
        exact=exact,
        own_records=last - common,
        other_records=max(0, max(fence.number for fence in fences) - common),
        touched=touched,
        more=more,
        backends=stamps,
        counter=0,
    )


def common_record(rows: JournalTables, fence: Fence) -> CommonRecord:
    """Return the last record that this journal shares with the history of *fence*.

    A copy begins by drawing a token. So two histories diverge right before the first token that only one of them has:
    that token is the copy's, if it was drawn at a record that both have. If the two remember no common token, too many
    were drawn since; then the latest record that is known to be common is returned."""
    ours, theirs = lineage(rows), fence.lineage
    both = {(each.counter, each.nonce) for each in ours} & {(each.counter, each.nonce) for each in theirs}
    shared = [each.number for each in theirs if contains(rows, each.number, each.hash)]
    alone = [each.number for each in ours if (each.counter, each.nonce) not in both][:1]
    alone += [
        each.number
        for each in theirs
        if (each.counter, each.nonce) not in both and contains(rows, each.number, each.hash)
    ][:1]
    if alone and (both or max(len(ours), len(theirs)) < LINEAGE_MAX):
        return CommonRecord(min(alone), exact=True)
    return CommonRecord(max(shared, default=0), exact=False)


def _read_time_ns(rows: JournalTables, number: int) -> int:
    """Return the time of the batch with record *number*; 0 if there is none."""
    found = rows.query("SELECT at_ns FROM journal WHERE number <= ? ORDER BY number DESC LIMIT 1", (number,))
    return int(found[0][0]) if found else 0


async def _end_other_claim(site: Site, common: int, fences: Iterable[Fence]) -> int:
    """Pin what dies after record *common*, and draw a token that ends the claim of the histories of *fences*. Return
    its counter."""
    until_ns = site.timing.clock.wall_ns() + int(site.config.journal.fork_grace_hours * 3_600 * 1e9)
    await site.journal.pin(f"{FORK_PIN} {common}", common, until_ns)
    failpoints.reach("takeover-pinned")
    ours = {each.nonce for each in lineage(site.store)}
    theirs = {nonce for fence in fences for nonce in (fence.nonce, *(each.nonce for each in fence.lineage))}
    ((whereabouts, last),) = site.store.query("SELECT whereabouts, counter FROM token")
    above = max((fence.counter for fence in fences if fence.counter <= last + COUNTER_STEPS), default=0)
    token = DrawToken(
        secrets.token_hex(NONCE_BYTES), secrets.randbits(63), whereabouts, above, over=tuple(sorted(theirs - ours))
    )
    counter = int(await site.journal.send(token))
    failpoints.reach("takeover-drawn")
    return counter
