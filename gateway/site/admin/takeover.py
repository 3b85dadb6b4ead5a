"""`entrepot takeover`: where this folder's history and another copy's part, and going on here all the same.

Two copies of a site's folder cannot both go on with the same backends: the one whose stamp the backends bear does, and
the other ends (`fencing`). Which of them is the right one is for an operator to say.

Taking over loses no record of this folder: its journal stays as it is, and a token is drawn whose counter is above
every one that a marker bears, with the other history's nonces, whose claim ends by that. The other one's records stay
in its own folder, which ends within seconds and may be taken over in turn. What its records name is kept for the grace:
it lies under ids of sessions that nobody here knows, which only `gc` would take away, and not before the grace has
passed; and what both know and this history lets go of is kept as long, by a pin.

Killed behind the pin: it runs out. Behind the token's record: the markers bear a claim that has ended, and the next
start replaces it. Between two backends: each is stamped by the next start.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from backends import errors as backend_errors
from backends.base import LINEAGE_MAX, Backend, Fence, Marker
from gateway import failpoints
from gateway.errors import Misconfigured
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.paths import JournalPaths
from gateway.journal.records.tree import BucketDeleted, BucketMade
from gateway.journal.server.server import NONCE_BYTES
from gateway.journal.session_commands import DrawToken
from gateway.journal.whereabouts import FORK_PIN
from gateway.site.admin.lost_objects import entry_address
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

KEYS_MAX = 100
"""Addresses that are listed."""
BATCHES_MAX = 100_000
"""Batches of the journal that are read for them."""
COUNTER_STEPS = 1 << 32
"""How far the counter of another copy's token may be ahead; a greater one is no committer's, and one store that forges
it must not use the numbers up. Tokens are told apart by their nonces; the counter is for people."""


class Bearing(NamedTuple):
    """What one backend bears."""

    backend: str
    state: str
    """`ours`, `unstamped`, `parted`, or `away`: it cannot be reached, or its marker is not this site's."""
    counter: int = 0
    """Of the token that it bears; 0 where none."""
    number: int = 0
    """How far the journal of who stamped it had come then."""
    at_ns: int = 0
    why: str = ""
    """Of one that is away."""


class Histories(NamedTuple):
    """This folder's history beside the one that the backends bear."""

    parted: bool
    """Some backend was stamped by another history."""
    common: int
    """The last record that both have, as far as is known; this folder's last one where they have not parted."""
    common_ns: int
    """Its time."""
    exact: bool
    """False: they may part earlier or later, since too many committers have started since."""
    ours: int
    """Records of this folder behind it."""
    theirs: int
    """As many of the other one as its last stamp tells."""
    keys: tuple[str, ...]
    """What this folder's records behind it touch."""
    more: bool
    """There are others, which are not listed."""
    backends: tuple[Bearing, ...]
    counter: int
    """Of the token under which this folder goes on now; 0: nothing was done."""


async def take_over(site: Site, *, confirmed: bool) -> Histories:
    """Compare this folder's history with the one that the backends bear; if *confirmed*, go on with this one. *site* is
    opened without its bytes. Raises `Misconfigured` for a site that is served, and where the backends agree
    (`agreement`) that the site was restored elsewhere in a later incarnation."""
    if is_served(site.folder):
        raise Misconfigured(f"{site.folder} is being served: its backends bear its own token")
    fencing = Fencing(site.store, lambda: 0, site.timing.clock, stamps=True)
    opened: list[tuple[Backend, Marker]] = []
    restored: dict[str, ActiveElsewhere] = {}
    try:
        places = _places(site)
        found = [await _look(each, site.store, fencing, opened, restored, site.timing) for each in places.values()]
        require_active_here(places, restored)
        fences = [held.fence for _, held in opened if held.fence and fencing.classify(held.fence) is Relation.DIVERGED]
        histories = await _compare(site, fences, tuple(found))
        if confirmed and histories.parted:
            histories = histories._replace(counter=await _go_on(site, histories.common, fences))
            for backend, held in opened:
                await _stamp(backend, held, fencing)
        return histories
    finally:
        await close_all(backend for backend, _ in opened)


def _places(site: Site) -> dict[str, BackendPlace]:
    lost = {name for (name,) in site.store.query("SELECT name FROM backend WHERE lost = 1")}
    return {name: place for name, place in site.config.topology(site.folder).backends.items() if name not in lost}


async def _look(
    place: BackendPlace,
    rows: JournalTables,
    fencing: Fencing,
    opened: list[tuple[Backend, Marker]],
    restored: dict[str, ActiveElsewhere],
    timing: Timing,
) -> Bearing:
    """What *place* bears. Where its marker is this site's, it is added to *opened*; where that is of a later
    incarnation, to *restored*."""
    seconds = timing.backends.open_seconds
    try:
        await load_driver(place)
        async with asyncio.timeout(seconds):
            backend = await open_backend(place, writes_much=False, make=False, timing=timing)
            try:
                held = await check_marker(backend, _id(rows, place.name), rows)
            except BaseException:
                await close_all([backend])
                raise
    except TimeoutError:
        return Bearing(place.name, "away", why=f"no answer within {seconds:g} s")
    except backend_errors.BackendError as error:
        if isinstance(error, RestoredElsewhere):
            restored[place.name] = error
        return Bearing(place.name, "away", why=error.message)
    opened.append((backend, held))
    if held.fence is None:
        return Bearing(place.name, "unstamped")
    state = "parted" if fencing.classify(held.fence) is Relation.DIVERGED else "ours"
    return Bearing(place.name, state, held.fence.counter, held.fence.number, held.fence.at_ns)


def _id(rows: JournalTables, name: str) -> int:
    """The backend's id in the journal; 0, which is nobody's, where the journal does not know it yet."""
    found = rows.query("SELECT id FROM backend WHERE name = ?", (name,))
    return int(found[0][0]) if found else 0


async def _compare(site: Site, fences: list[Fence], found: tuple[Bearing, ...]) -> Histories:
    last = head(site.store).number
    if not fences:
        return Histories(False, last, _time(site.store, last), True, 0, 0, (), False, found, 0)
    common, exact = min(common_record(site.store, fence) for fence in fences)
    path = JournalPaths(site.journal_path).database
    keys, more = await asyncio.to_thread(_touched, str(path), common)
    theirs = max(fence.number for fence in fences) - common
    when = _time(site.store, common)
    return Histories(True, common, when, exact, last - common, max(0, theirs), keys, more, found, 0)


def common_record(rows: JournalTables, fence: Fence) -> tuple[int, bool]:
    """The last record that this journal shares with the history of *fence*, and whether that is sure.

    A copy begins by drawing a token, so the two part right before the first token that one of them has alone: that one
    is the copy's, if it was drawn at a point that both have. Where either remembers no token that both have, too many
    were drawn since, and the latest point that is known to be shared is answered."""
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
        return min(alone), True
    return max(shared, default=0), False


def _time(rows: JournalTables, number: int) -> int:
    found = rows.query("SELECT at_ns FROM journal WHERE number <= ? ORDER BY number DESC LIMIT 1", (number,))
    return int(found[0][0]) if found else 0


def _touched(path: str, after: int) -> tuple[tuple[str, ...], bool]:
    """Addresses that the records behind number *after* touch, and whether there may be others. In a thread."""
    found: dict[str, None] = {}
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as base:
        batches = base.execute(
            "SELECT records FROM journal WHERE number > ? ORDER BY number LIMIT ?", (after, BATCHES_MAX + 1)
        )
        for at, (packed,) in enumerate(batches):
            for record in RECORD_CODEC.unpack(packed):
                found |= dict.fromkeys(_addresses(base, record))
            if len(found) > KEYS_MAX or at >= BATCHES_MAX:
                return tuple(found)[:KEYS_MAX], True
    return tuple(found), False


def _addresses(base: sqlite3.Connection, record: Any) -> Iterator[str]:
    """The names in the tree that *record* speaks of."""
    for parent, name in (("parent", "name"), ("to_parent", "to_name")):
        if isinstance(getattr(record, parent, None), int) and isinstance(getattr(record, name, None), bytes):
            yield entry_address(base, getattr(record, parent), getattr(record, name))
    if isinstance(getattr(record, "bucket", None), str) and isinstance(getattr(record, "key", None), bytes):
        yield f"s3://{record.bucket}/{record.key.decode(errors='replace')}"
    if isinstance(record, BucketMade | BucketDeleted):
        yield f"s3://{record.name}"


async def _go_on(site: Site, common: int, fences: Iterable[Fence]) -> int:
    """End the other history's claim. Answers the new token's counter."""
    until_ns = site.timing.clock.wall_ns() + int(site.config.journal.fork_grace_hours * 3_600 * 1e9)
    await site.journal.pin(f"{FORK_PIN} {common}", common, until_ns)
    failpoints.reach("takeover-pinned")
    ours = {each.nonce for each in lineage(site.store)}
    over = {nonce for fence in fences for nonce in (fence.nonce, *(each.nonce for each in fence.lineage))} - ours
    ((whereabouts, counted),) = site.store.query("SELECT whereabouts, counter FROM token")
    above = max((fence.counter for fence in fences if fence.counter <= counted + COUNTER_STEPS), default=0)
    token = DrawToken(secrets.token_hex(NONCE_BYTES), secrets.randbits(63), whereabouts, above, tuple(sorted(over)))
    counter = int(await site.journal.send(token))
    failpoints.reach("takeover-drawn")
    return counter


async def _stamp(backend: Backend, held: Marker, fencing: Fencing) -> None:
    """As far as it can be: the next start stamps what cannot be stamped now."""
    wanted = fencing.with_fence(held)
    if wanted is not None:
        try:
            await backend.claim(wanted)
        except backend_errors.OwnedByAnotherSite as error:
            raise Misconfigured(
                f"{error}: the other folder is still in use: it ends within seconds, then run this again"
            ) from error
        except backend_errors.BackendError:
            return


def plain(found: Histories) -> dict[str, Any]:
    """Plain values."""
    return {**found._asdict(), "backends": [each._asdict() for each in found.backends]}


def spell(found: Histories, folder: str) -> list[str]:
    """For people."""
    lines = [_spelt(each) for each in found.backends]
    if not found.parted:
        return [*lines, "the backends bear this folder's own history: there is nothing to take over"]
    about = "" if found.exact else "about "
    lines += [
        f"the two histories part behind {about}record {found.common}, of {_when(found.common_ns)}",
        f"this folder has {found.ours} record(s) behind it, the other one {found.theirs} or more",
    ]
    lines += [f"touched here since: {key}" for key in found.keys]
    lines += ["and others"] if found.more else []
    if found.counter:
        lines.append(f"this folder goes on, with token {found.counter}: `entrepot serve {folder}` starts again")
    else:
        lines.append(
            f"nothing was done. `entrepot takeover {folder} --yes` goes on here: the other folder ends, and what it "
            "recorded stays in it and is not in this one"
        )
    return lines


def _spelt(each: Bearing) -> str:
    match each.state:
        case "away":
            return f"backend {each.backend}: cannot be used: {each.why}"
        case "unstamped":
            return f"backend {each.backend}: no committer has stamped it"
        case _:
            whose = "this folder's history" if each.state == "ours" else "ANOTHER history"
            return f"backend {each.backend}: {whose}, token {each.counter}, record {each.number}, {_when(each.at_ns)}"


def _when(at_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ns / 1e9))
