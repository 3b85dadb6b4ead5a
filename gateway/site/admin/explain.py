"""Explain where an object is stored, and why: the work of `entrepot explain`.

Two answers, which need not agree. The *target* is what the config in force says of a write now: the first rule that
matches, its policy, and that policy's backends. The *stored blocks* are what the journal has: each block keeps the
policy of its write, and its copies may be on their way to other backends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gateway.blocks.read.lookup import Lookup
from gateway.blocks.read.read_plan import plan_read
from gateway.errors import InvalidArgument, NoSuchUser
from gateway.journal.tables import WorkState
from gateway.namespace.read import lookups
from gateway.placement import policy as placement
from gateway.placement.routes import CopyRank, Routes
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.site.admin.lost_objects import lost_backends
from gateway.topology import Topology

if TYPE_CHECKING:
    from gateway.site.site_view import SiteView

EXTENTS_MAX = 10_000
"""How many extents of an object are examined, from its beginning."""
RANKED_READ_BYTES = 8 << 20
"""The order of reads is computed for a read of the whole object, or of this many bytes if it is larger."""


class WriteTarget(NamedTuple):
    """Where the bytes of a key would be stored if they were written now."""

    size: int | None
    """The size of the write; None if it is written in parts."""
    policy: str
    because: str
    """Why this policy was selected."""
    ack: tuple[str, ...]
    """The backends to which the write goes before it is acknowledged."""
    ack_copies: int
    """How many of them must have the bytes by then."""
    keep: tuple[str, ...]
    """The backends that should have a copy in the end."""
    refused: str
    """Why the write would be refused; empty if it would not."""
    within_seconds: float
    """The time within which `keep` is to be fulfilled."""


class ReadOption(NamedTuple):
    """One copy that a reader may try."""

    backend: str
    why: str
    """Why the copy has its place in the order."""


class BlockGroup(NamedTuple):
    """Those blocks of an object that have the same policy and the same backends."""

    blocks: int
    policy: str
    """The name of the policy of their write."""
    backends: tuple[str, ...]
    """The backends that have the blocks."""
    desired: tuple[str, ...]
    """The backends that should have them, sorted."""
    order: tuple[ReadOption, ...]
    """The order in which the reader tries the copies."""


class StoredBlocks(NamedTuple):
    """Where the bytes of an object are stored."""

    blocks: int
    truncated: bool
    """Whether only the first `EXTENTS_MAX` extents were examined."""
    work: dict[str, int]
    """How many blocks wait for what kind of work of the keeper."""
    groups: tuple[BlockGroup, ...]


class Explanation(NamedTuple):
    address: str
    version: str | None
    """The id of the version; None if there is no such object."""
    size: int | None
    """None if there is no such object, or if it is a delete marker."""
    delete_marker: bool
    cluster: str
    """The cluster of the reader."""
    target: WriteTarget
    stored: StoredBlocks | None
    """None if there are no bytes."""


def parse_address(address: str) -> tuple[str, bytes]:
    """Return bucket and key of `s3://bucket/key`. Raises `InvalidArgument`."""
    bucket, slash, key = address.removeprefix("s3://").partition("/")
    if not address.startswith("s3://") or not bucket or not slash or not key:
        raise InvalidArgument(f"{address!r} is not the address of an object: s3://BUCKET/KEY")
    return bucket, key.encode()


def explain(
    site: SiteView, address: str, cluster: str = "", user: str = "root", version: str = "", size: int | None = None
) -> Explanation:
    """Return where the bytes of the key at *address* would be stored if *user* wrote *size* bytes now, where they are
    stored, and in which order a reader in *cluster* would try the copies.

    By default *cluster* is the site's, *size* is that of the object, and *version* is the current one. Raises
    `NoSuchBucket`, `NoSuchUser`, `InvalidArgument`."""
    topology = site.config.topology(site.folder)
    cluster = cluster or topology.home
    if cluster not in topology.clusters:
        raise InvalidArgument(f"there is no cluster {cluster!r}; there is {', '.join(topology.clusters)}")
    if not site.store.query("SELECT 1 FROM user WHERE name = ?", (user,)):
        raise NoSuchUser(user)
    bucket, key = parse_address(address)
    row = lookups.find(site.store, bucket, key, version)
    file = row.file if row is not None else None
    if size is None and file is not None:
        size = file.size
    stored = None
    if file is not None:
        stored = _find_stored_blocks(site, topology, cluster, file.shape, file.content, file.size)
    return Explanation(
        address,
        version=row.version_text if row is not None else None,
        size=file.size if file is not None else None,
        delete_marker=row is not None and file is None,
        cluster=cluster,
        target=_find_write_target(site, topology, bucket, key, size, user),
        stored=stored,
    )


def _find_write_target(
    site: SiteView, topology: Topology, bucket: str, key: bytes, size: int | None, user: str
) -> WriteTarget:
    lost = lost_backends(site.store)
    policy = topology.policy_for(bucket, key, size, user)
    first = next((n for n, rule in enumerate(topology.rules) if rule.matches(bucket, key, size, user)), None)
    return WriteTarget(
        size,
        policy.name,
        because="no rule matches" if first is None else f"rules[{first}] is the first that matches",
        ack=placement.acked_on(policy, topology, lost),
        ack_copies=topology.copies_before_answer(policy),
        keep=tuple(name for name in topology.kept_on(policy) if name not in lost),
        refused=placement.unmet(policy, topology, lost),
        within_seconds=policy.within_seconds,
    )


def _find_stored_blocks(
    site: SiteView, topology: Topology, cluster: str, shape: int, content: int, size: int
) -> StoredBlocks:
    """Group the blocks of a file with this shape and content by their policy and their backends."""
    targets = PlacementTargets(site.store, lambda: topology)
    targets.refresh()
    lookup = Lookup(site.store, {})
    routes = Routes(
        placement.placed_backends(topology, {name: number for number, name in targets.names.items()}).values(),
        cluster,
        topology.lines,
        timing=site.timing.routes,
    )
    blocks, truncated = _blocks_of(lookup, shape, content, size)
    counts: Counter[tuple[int, int]] = Counter()
    work: Counter[str] = Counter()
    for block in blocks:
        counts.update(site.store.query("SELECT policy, backends FROM block WHERE id = ?", (block,)))
        work.update(_work_on(site, block))
    policies = {number: name for name, number in site.store.query("SELECT name, id FROM policy")}
    groups = []
    for (policy, set_id), count in sorted(counts.items()):
        members = lookup.members(set_id)
        ranks = routes.explain(members, min(size, RANKED_READ_BYTES), 0.0)
        groups.append(
            BlockGroup(
                count,
                policies[policy],
                backends=tuple(targets.names[each] for each in members),
                desired=tuple(sorted(targets.names[each] for each in targets.desired(policy, members))),
                order=tuple(ReadOption(targets.names[rank.id], _why(topology, targets, rank)) for rank in ranks),
            )
        )
    return StoredBlocks(len(blocks), truncated, dict(work), tuple(groups))


def _blocks_of(lookup: Lookup, shape: int, content: int, size: int) -> tuple[Sequence[bytes], bool]:
    """Return the ids of the blocks of a file in the order of its bytes, and whether some were left out."""
    blocks: dict[bytes, None] = {}
    for index, extent_range in enumerate(plan_read(shape, content, 0, size, lookup.extents_of, lookup.pieces_of)):
        if index >= EXTENTS_MAX:
            return list(blocks), True
        blocks[extent_range.extent.block] = None
    return list(blocks), False


def _why(topology: Topology, targets: PlacementTargets, rank: CopyRank) -> str:
    if targets.names[rank.id] not in topology.backends:
        return "not read: the config does not name it"
    return f"{rank}; it was given up as lost" if rank.id in targets.lost else str(rank)


def _work_on(site: SiteView, block: bytes) -> Iterator[str]:
    """Yield what the keeper still has to do with the block."""
    for state, word in site.store.query("SELECT state, word FROM work WHERE block = ?", (block,)):
        kind = WorkState(state).name.lower()
        yield f"{kind}: {word}" if word else kind
