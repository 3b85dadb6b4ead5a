"""What should be, in the journal's ids: `placement.desired` over today's topology, asked once for each policy and set.

The topology may be exchanged at any time; whoever works asks `refresh` before each step, and what was remembered of an
older one is forgotten. A fingerprint names everything that the answers depend on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection

from gateway.blocks.protocols import TableReader
from gateway.placement.desired import StoredBlock, desired
from gateway.topology import Topology

FINGERPRINT_BYTES = 16


class PlacementTargets:
    """For one thread."""

    def __init__(self, store: TableReader, topology: Callable[[], Topology]) -> None:
        self._store = store
        self._topology = topology
        self._seen: tuple[object, ...] = ()
        self._known: dict[tuple[int, tuple[int, ...]], frozenset[int]] = {}
        self.names: dict[int, str] = {}
        """Every backend that the journal knows, by its id."""
        self.lost: frozenset[int] = frozenset()
        """Of those, the ones whose copies are gone for good."""
        self.fingerprint = b""
        self._ids: dict[str, int] = {}
        self.policies: dict[int, str] = {}
        """Every policy that the journal knows, by its id."""

    def refresh(self) -> bool:
        """Learn what changed. False while the topology names a backend that the journal has not met: then nothing can
        be said yet."""
        self._now = self._topology()
        backends = self._store.query("SELECT name, id, lost FROM backend")
        policies = self._store.query("SELECT name, id FROM policy")
        seen = (self._now, tuple(backends), tuple(policies))
        if seen != self._seen:
            self._seen = seen
            self._known.clear()
            self._ids = {name: number for name, number, _ in backends}
            self.names = {number: name for name, number, _ in backends}
            self.lost = frozenset(number for _, number, lost in backends if lost)
            self.policies = {number: name for name, number in policies}
            self.fingerprint = fingerprint(self._now, [self.names[each] for each in self.lost])
        return self._ids.keys() >= self._now.backends.keys()

    def desired(self, policy: int, held: tuple[int, ...]) -> frozenset[int]:
        """The backends that should hold a block that was written under *policy* and is held by *held*."""
        found = self._known.get((policy, held))
        if found is None:
            facts = StoredBlock(self.policies.get(policy, ""), 0, frozenset(self.names[each] for each in held))
            lost = [self.names[each] for each in self.lost]
            wanted = desired(facts, self._now, 0, lost).backends
            found = self._known[(policy, held)] = frozenset(self._ids[name] for name in wanted)
        return found

    @property
    def within_seconds(self) -> float:
        """The shortest recovery point that a policy promises."""
        return min(policy.within_seconds for policy in self._now.policies.values())

    @property
    def recheck_seconds(self) -> float:
        """How long old copies of a block that was moved are kept before the new ones are asked for again."""
        return self._now.recheck_seconds

    def is_local(self, place: int) -> bool:
        """Whether the backend is a folder of a local file system."""
        found = self._now.backends.get(self.names.get(place, ""))
        return found is not None and found.s3 is None


def fingerprint(topology: Topology, lost: Collection[str]) -> bytes:
    """Of all that `desired` looks at, but for the block; and of how long old copies are kept, so that those that wait
    are looked at again when that changes."""
    policies = {name: sorted(policy.keep) for name, policy in topology.policies.items()}
    backends = {name: place.drain for name, place in topology.backends.items()}
    told = json.dumps([policies, backends, sorted(lost), topology.recheck_seconds], sort_keys=True)
    return hashlib.blake2b(told.encode(), digest_size=FINGERPRINT_BYTES).digest()
