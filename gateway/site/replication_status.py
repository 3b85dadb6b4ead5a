"""The replication status of a site: what each backend holds, which blocks are not where they should be, what is lost.

Read from the journal's database in a thread, since it counts all blocks. For the command line and the metrics.
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
    """What one backend holds."""

    name: str
    cluster: str
    """Empty if the config does not name the backend."""
    blocks: int
    bytes: int
    """Sealed."""
    leaving: int
    """Blocks of which bytes are there, or may be, although their set does not name this backend."""
    state: str
    """`in use`, `drains`, `empty` (it drained, and may be taken out of the config), `lost`, or `not in the config`."""


class Backlog(NamedTuple):
    """Work of one kind: `place` (copies to be made or dropped), `repair` (suspected copies), `recheck` (copies are
    where they should be, and old ones are kept until the new ones were checked again), `clear` (bytes that are deleted
    once nobody reads them), `set aside` (it failed too often, and is tried daily), `lost` (no good copy is left)."""

    kind: str
    blocks: int
    bytes: int
    oldest_seconds: float


class RecoveryPoint(NamedTuple):
    """How far the copies of a policy's blocks are behind what it keeps."""

    policy: str
    blocks: int
    oldest_seconds: float
    within_seconds: float
    """The recovery point that the policy promises; 0 if the config does not have the policy."""
    late: bool


class ReplicationStatus(NamedTuple):
    """The status of the whole site."""

    backends: tuple[BackendUse, ...]
    backlog: tuple[Backlog, ...]
    points: tuple[RecoveryPoint, ...]
    walking: bool
    """The planner is examining all blocks, so the backlog may still grow."""
    unknown_policies: tuple[str, ...]
    """Policies of existing blocks that the config does not have. Their blocks stay where they are."""
    remarks: tuple[str, ...] = ()
    """What the operator should change in the config, since backends were given up as lost."""

    @property
    def settled(self) -> bool:
        """Whether all blocks are where they should be, except lost ones. Old copies may still wait to be deleted."""
        return not self.walking and not any(each.kind in {"place", "repair", "set aside"} for each in self.backlog)


def config_remarks(journal: Path, topology: Topology) -> list[str]:
    """Return what the operator should change in *topology*, since backends were given up as lost. Empty if there is no
    journal yet. Blocking."""
    database = JournalPaths(journal).database
    if not database.exists():
        return []
    store = ReadStore(database, cache_kib=1_024)
    try:
        return list(remarks(topology, [name for (name,) in store.query("SELECT name FROM backend WHERE lost = 1")]))
    finally:
        store.close()


async def read_status(journal: Path, topology: Topology, clock: Clock) -> ReplicationStatus:
    """Read the status of the site with the journal in *journal*."""
    return await asyncio.to_thread(count_status, journal, topology, clock)


def count_status(journal: Path, topology: Topology, clock: Clock) -> ReplicationStatus:
    """As `read_status`. Blocking."""
    store = ReadStore(JournalPaths(journal).database, cache_kib=8_192)
    try:
        return _count(store, topology, clock.wall_ns())
    finally:
        store.close()


def _count(store: ReadStore, topology: Topology, now_ns: int) -> ReplicationStatus:
    targets = PlacementTargets(store, lambda: topology)
    with store.snapshot():
        known, lookup = targets.refresh(), Lookup(store, {})
        work = [_classify(row, targets if known else None, lookup) for row in store.query(_WORK)]
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
    """A group of rows of work with the same policy and kind."""

    policy: int
    kind: str
    behind: bool
    """The copies are not yet what the policy keeps. Otherwise there are only old copies to be deleted."""
    blocks: int
    bytes: int
    since_ns: int


def _classify(row: tuple[Any, ...], targets: PlacementTargets | None, lookup: Lookup) -> _Rows:
    """Classify a row of `_WORK`. *targets*: None if it is unknown where blocks should be.

    A copy that is being made is among the strays, and so is one that is to be deleted. The set of holders tells which
    of the two it is."""
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
    by_kind: dict[str, list[_Rows]] = {}
    for each in work:
        by_kind.setdefault(each.kind, []).append(each)
    return tuple(
        Backlog(kind, sum(each.blocks for each in group), sum(each.bytes for each in group), _oldest(group, now_ns))
        for kind, group in sorted(by_kind.items())
    )


def _points(
    work: Iterable[_Rows], targets: PlacementTargets, topology: Topology, now_ns: int
) -> tuple[RecoveryPoint, ...]:
    """Return the recovery points of the policies that are behind, sorted by name."""
    by_policy: dict[str, list[_Rows]] = {}
    for each in work:
        if each.behind and each.policy in targets.policies:
            by_policy.setdefault(targets.policies[each.policy], []).append(each)
    points = []
    for name, group in sorted(by_policy.items()):
        within = topology.policies[name].within_seconds if name in topology.policies else 0.0
        oldest = _oldest(group, now_ns)
        points.append(RecoveryPoint(name, sum(each.blocks for each in group), oldest, within, 0 < within < oldest))
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
    uses = []
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
            uses.append(
                BackendUse(name, cluster, blocks.get(number, 0), sizes.get(number, 0), leaving.get(number, 0), state)
            )
    return tuple(uses)


async def check_backends(site: Site) -> dict[str, str]:
    """Return for each backend, by name, a sentence that says whether it answers and has this site's marker now."""

    async def ask(backend: Backend) -> tuple[str, str]:
        began = time.perf_counter()
        try:
            held = await backend.marker()
        except BackendError as error:
            return backend.name, f"{error.outcome}: {error.message}"
        if held is None or held.site != site.id:
            return backend.name, "it does not have this site's marker"
        return backend.name, f"answers in {(time.perf_counter() - began) * 1000:.1f} ms"

    return dict(await asyncio.gather(*(ask(backend) for backend in list(site.storage.backends.values()))))
