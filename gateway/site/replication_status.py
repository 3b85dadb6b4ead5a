"""How the site stands: what each backend holds, what waits to be brought where it should be, and what is lost.

Read from the journal's file in a thread of its own, since it counts all blocks: for the command line and the metrics.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from backends.base import Backend
from backends.errors import BackendError
from gateway.blocks.read.lookup import Lookup
from gateway.journal.apply.work import unpack_ids
from gateway.journal.columns import unpack
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.tables import WorkState
from gateway.placement.policy import remarks
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.timing import Clock
from gateway.topology import Topology

if TYPE_CHECKING:
    from gateway.site.site import Site

KINDS = ("place", "repair", "recheck", "clear", "set aside", "lost")
_WORK = (
    "SELECT b.policy, b.backends, w.state, w.suspects <> x'', w.strays <> x'', w.placed_ns > 0, "
    "count(*), sum(b.size), min(w.since_ns) "
    "FROM work w JOIN block b ON b.id = w.block WHERE b.died = 0 GROUP BY 1, 2, 3, 4, 5, 6"
)


class BackendUse(NamedTuple):
    """What a backend holds."""

    name: str
    cluster: str
    """Empty where the config does not name it."""
    blocks: int
    bytes: int
    """Sealed."""
    leaving: int
    """Blocks of which bytes are there, or may be, that no set names any more."""
    state: str
    """`in use`, `drains`, `empty` (it drained, and may be taken out of the config), `lost`, or `not in the config`."""


class Backlog(NamedTuple):
    """Work of one kind: `place` (copies to be made or let go of), `repair`, `recheck` (copies are where they should be,
    and old ones are kept until they were asked for again), `clear` (bytes that go once nobody reads them), `set aside`
    (it failed too often, and is tried daily), `lost` (no good copy is left)."""

    kind: str
    blocks: int
    bytes: int
    oldest_seconds: float


class RecoveryPoint(NamedTuple):
    """How far a policy is behind: its recovery point."""

    policy: str
    blocks: int
    oldest_seconds: float
    within_seconds: float
    """0: the config does not have it, and it promises nothing."""
    late: bool


class ReplicationStatus(NamedTuple):
    """All of it."""

    backends: tuple[BackendUse, ...]
    backlog: tuple[Backlog, ...]
    points: tuple[RecoveryPoint, ...]
    walking: bool
    """The blocks are being held against what should be; the backlog may still grow."""
    unknown_policies: tuple[str, ...]
    """Those that blocks were written under, and that the config does not have: they keep what they have."""
    remarks: tuple[str, ...] = ()
    """What the config should not say any more, since a backend was given up as lost."""

    @property
    def settled(self) -> bool:
        """All that should be is, but for what is lost and for bytes that wait to go."""
        return not self.walking and not any(each.kind in {"place", "repair", "set aside"} for each in self.backlog)


def config_remarks(journal: Path, topology: Topology) -> list[str]:
    """What of *topology* should be changed since backends were given up as lost; nothing where there is no journal
    yet. Blocking."""
    database = JournalPaths(journal).database
    if not database.exists():
        return []
    store = ReadStore(database, cache_kib=1_024)
    try:
        return list(remarks(topology, [name for (name,) in store.query("SELECT name FROM backend WHERE lost = 1")]))
    finally:
        store.close()


async def read_status(journal: Path, topology: Topology, clock: Clock) -> ReplicationStatus:
    """How it stands now."""
    return await asyncio.to_thread(_look, journal, topology, clock.wall_ns())


def _look(journal: Path, topology: Topology, now_ns: int) -> ReplicationStatus:
    store = ReadStore(JournalPaths(journal).database, cache_kib=8_192)
    try:
        return _counted(store, topology, now_ns)
    finally:
        store.close()


def _counted(store: ReadStore, topology: Topology, now_ns: int) -> ReplicationStatus:
    targets = PlacementTargets(store, lambda: topology)
    with store.snapshot():
        known, lookup = targets.refresh(), Lookup(store, {})
        work = [_judged(row, targets if known else None, lookup) for row in store.query(_WORK)]
        walked = store.query("SELECT 1 FROM plan WHERE fingerprint = ? AND again_ns > 0", (targets.fingerprint,))
        return ReplicationStatus(
            _uses(store, topology),
            _backlog(work, now_ns),
            _points(work, targets, topology, now_ns),
            not walked and bool(store.query("SELECT 1 FROM block LIMIT 1")),
            tuple(
                name
                for name, number in store.query("SELECT name, id FROM policy")
                if name not in topology.policies
                and store.query("SELECT 1 FROM block WHERE policy = ? AND died = 0 LIMIT 1", (number,))
            ),
            tuple(remarks(topology, [targets.names[each] for each in targets.lost])),
        )


class _Rows(NamedTuple):
    """Rows of work that are alike."""

    policy: int
    kind: str
    behind: bool
    """The copies are not yet what the policy keeps; otherwise there is only something to be tidied away."""
    blocks: int
    bytes: int
    since_ns: int


def _judged(row: tuple[Any, ...], targets: PlacementTargets | None, lookup: Lookup) -> _Rows:
    """What a group of `_WORK` is. A copy under way may lie among the strays, as one does whose bytes are to go: which
    of both it is, the set says. *wishes*: None where nothing can be said of what should be."""
    policy, set_id, state, suspects, strays, placed, blocks, size, since_ns = row
    held, right, complete = lookup.members(set_id), False, False
    if targets is not None:
        desired = targets.desired(policy, held)
        right, complete = desired == frozenset(held), desired < frozenset(held) - targets.lost
    if state:
        kind = "lost" if state == WorkState.LOST else "set aside"
    elif suspects:
        kind = "repair"
    elif placed and complete:
        kind = "recheck"
    else:
        kind = "clear" if right and (strays or placed) else "place"
    behind = (not right and kind != "recheck") or bool(suspects) or kind == "lost"
    return _Rows(policy, kind, behind, blocks, size, since_ns)


def _backlog(work: Iterable[_Rows], now_ns: int) -> tuple[Backlog, ...]:
    found: dict[str, list[_Rows]] = {}
    for each in work:
        found.setdefault(each.kind, []).append(each)
    return tuple(
        Backlog(kind, sum(each.blocks for each in alike), sum(each.bytes for each in alike), _oldest(alike, now_ns))
        for kind, alike in sorted(found.items())
    )


def _points(
    work: Iterable[_Rows], targets: PlacementTargets, topology: Topology, now_ns: int
) -> tuple[RecoveryPoint, ...]:
    """Of the policies that are behind, in the order of their names."""
    found: dict[str, list[_Rows]] = {}
    for each in work:
        if each.behind and each.policy in targets.policies:
            found.setdefault(targets.policies[each.policy], []).append(each)
    points = []
    for name, alike in sorted(found.items()):
        within = topology.policies[name].within_seconds if name in topology.policies else 0.0
        oldest = _oldest(alike, now_ns)
        points.append(RecoveryPoint(name, sum(each.blocks for each in alike), oldest, within, 0 < within < oldest))
    return tuple(points)


def _oldest(rows: Iterable[_Rows], now_ns: int) -> float:
    return _age(min(each.since_ns for each in rows), now_ns)


def _age(since_ns: int, now_ns: int) -> float:
    return round(max(0.0, (now_ns - since_ns) / 1e9), 3)


def _uses(store: ReadStore, topology: Topology) -> tuple[BackendUse, ...]:
    blocks: dict[int, int] = {}
    sizes: dict[int, int] = {}
    leaving: dict[int, int] = {}
    sets = {number: unpack(members) for members, number in store.query("SELECT members, id FROM backend_set")}
    for set_id, count, size in store.query("SELECT backends, count(*), sum(size) FROM block GROUP BY backends"):
        for place in sets.get(set_id, ()):
            blocks[place] = blocks.get(place, 0) + count
            sizes[place] = sizes.get(place, 0) + size
    for strays, count in store.query("SELECT strays, count(*) FROM work WHERE strays <> x'' GROUP BY strays"):
        for place in unpack_ids(strays):
            leaving[place] = leaving.get(place, 0) + count
    found = []
    for name, number, lost in store.query("SELECT name, id, lost FROM backend ORDER BY name"):
        place = topology.backends.get(name)
        held = blocks.get(number, 0) + leaving.get(number, 0)
        if lost:
            state = "lost"
        elif place is None:
            state = "not in the config"
        elif place.drain:
            state = "drains" if held else "empty"
        else:
            state = "in use"
        if place is not None or held or lost:
            cluster = place.cluster if place is not None else ""
            found.append(
                BackendUse(name, cluster, blocks.get(number, 0), sizes.get(number, 0), leaving.get(number, 0), state)
            )
    return tuple(found)


async def check_backends(site: Site) -> dict[str, str]:
    """For each backend that the config names: whether it bears this site's marker and answers, now."""

    async def ask(backend: Backend) -> tuple[str, str]:
        began = time.perf_counter()
        try:
            held = await backend.marker()
        except BackendError as error:
            return backend.name, f"{error.outcome}: {error.message}"
        if held is None or held.site != site.id:
            return backend.name, "it does not bear this site's marker"
        return backend.name, f"answers in {(time.perf_counter() - began) * 1000:.1f} ms"

    return dict(await asyncio.gather(*(ask(backend) for backend in list(site.storage.backends.values()))))
