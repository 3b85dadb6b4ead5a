"""Where the blocks of a write go: the policy that the topology chooses, resolved to open backends and the journal's ids
of sets."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

from backends.base import Backend
from gateway.blocks.types import Target, Targets
from gateway.errors import ReadOnlySite, Unavailable
from gateway.journal.columns import pack
from gateway.placement import policy as placement
from gateway.site.storage.keyring import JournalTables
from gateway.timing import Timing
from gateway.topology import Policy, Topology

T = TypeVar("T")


class WriteTargets:
    """Resolves policies to the targets of writes. For one thread."""

    def __init__(
        self, rows: JournalTables, backends: Mapping[int, Backend], topology: Topology, timing: Timing
    ) -> None:
        self._rows = rows
        self._backends = backends
        self._lost: frozenset[str] = frozenset()
        self._look_again = 0.0
        self._timing = timing
        self._made: list[weakref.ref[Targets]] = []
        self._refused = ""
        self.set_topology(topology)

    def set_topology(self, topology: Topology) -> None:
        """Resolve new writes under *topology*. Running writes keep their targets."""
        self._topology = topology
        self._known: dict[str, Targets] = {}
        self._made = [each for each in self._made if each() is not None]

    def refuse(self, why: str) -> None:
        """Refuse all writes from now on with `ReadOnlySite`, whose message is *why*."""
        self._refused = why

    def has_writes_to(self, backend: int) -> bool:
        """Whether a write that began under an older topology still goes to *backend*."""
        current = [id(each) for each in self._known.values()]
        older = [targets for each in self._made if (targets := each()) is not None and id(targets) not in current]
        return any(backend in [target.id for target in each.copies] for each in older)

    def for_write(self, bucket: str, key: bytes, size: int | None, user: str) -> Targets:
        """Return the targets of a write of *key* by *user*. *size*: see `Topology.policy_for`. Raises `Unavailable` if
        the policy cannot be met, or the journal does not know it yet, and `ReadOnlySite` after `refuse`."""
        return self._of(self._topology.policy_for(bucket, key, size, user))

    @property
    def default(self) -> Targets:
        """The targets of the policy `default`. Raises as `for_write`."""
        return self._of(self._topology.default)

    @property
    def has_several_policies(self) -> bool:
        """Whether there is more than one policy."""
        return len(self._topology.policies) > 1

    def of(self, policy: int, wanted: Collection[int]) -> Targets:
        """Return where a block of the policy with id *policy* is written again now, as when packs are compacted.

        If the config no longer has that policy, the block keeps the policy, and goes to *wanted*: the ids of the
        backends that should hold it. Raises `Unavailable` if it cannot go there now."""
        rows = self._rows.query("SELECT name FROM policy WHERE id = ?", (policy,))
        named = self._topology.policies.get(rows[0][0]) if rows else None
        if named is not None:
            return self._of(named)
        if not wanted or not all(each in self._backends for each in wanted):
            raise Unavailable("nothing can be rewritten: a backend that should hold it is not open")
        copies = tuple(Target(self._backends[each], each) for each in sorted(wanted))
        return self._tracked(Targets(policy, self._set(wanted), copies))

    def _of(self, policy: Policy) -> Targets:
        if self._refused:
            raise ReadOnlySite(self._refused)
        self._refresh_lost()
        targets = self._known.get(policy.name)
        if targets is None:
            targets = self._known[policy.name] = self._tracked(self._resolve(policy))
        return targets

    def _tracked(self, targets: Targets) -> Targets:
        """Remember *targets*, by a weak reference, while a write uses them."""
        self._made = [each for each in self._made if each() is not None]
        self._made.append(weakref.ref(targets))
        return targets

    def _resolve(self, policy: Policy) -> Targets:
        topology, acked = self._topology, placement.acked_on(policy, self._topology, self._lost)
        why = placement.unmet(policy, topology, self._lost)
        if why:
            raise Unavailable(f"nothing can be stored: {why}")
        ids = [self._id("backend", name) for name in acked]
        needed = topology.copies_before_answer(policy)
        return Targets(
            policy=self._id("policy", policy.name),
            set_id=self._set(ids),
            copies=tuple(Target(self._backends[each], each) for each in sorted(ids)),
            is_final=set(acked) == {*topology.kept_on(policy)}.difference(self._lost),
            needed=needed,
            partial_sets={frozenset(each): self._set(each) for each in _choices(ids, needed)},
        )

    def _refresh_lost(self) -> None:
        """Load, at most once a second, which backends were given up as lost. Nothing new is put there. The mover copies
        what was put there in between to other backends, while the lost one still answers."""
        now = self._timing.clock.monotonic()
        if now < self._look_again:
            return
        self._look_again = now + self._timing.backends.lost_look_seconds
        lost = frozenset(name for (name,) in self._rows.query("SELECT name FROM backend WHERE lost = 1"))
        if lost != self._lost:
            self._lost = lost
            self._known = {}

    def _id(self, table: str, name: str) -> int:
        rows = self._rows.query(f"SELECT id FROM {table} WHERE name = ?", (name,))
        if not rows or (table == "backend" and rows[0][0] not in self._backends):
            raise Unavailable(f"the {table} {name!r} is in the config, but not in use yet: try again")
        return int(rows[0][0])

    def _set(self, members: Collection[int]) -> int:
        rows = self._rows.query("SELECT id FROM backend_set WHERE members = ?", (pack(sorted(members)),))
        if not rows:
            raise Unavailable("a backend that the policy names was not claimed yet: try again")
        return int(rows[0][0])


def sets_of(topology: Topology) -> list[tuple[str, ...]]:
    """Return every set of backends, as sorted names, that a write or the mover may record as the holders of a block."""
    sets: dict[tuple[str, ...], None] = {}
    for policy in topology.policies.values():
        acked = topology.acked_on(policy)
        for names in (acked, topology.kept_on(policy), *_choices(acked, topology.copies_before_answer(policy))):
            sets[tuple(sorted(names))] = None
    return list(sets)


def _choices(members: Sequence[T], least: int) -> list[tuple[T, ...]]:
    """Return the subsets of *members* that may hold a block when its write is answered, since the write awaits *least*
    of them. The full set is not among them."""
    return [chosen for size in range(least, len(members)) for chosen in combinations(members, size)]
