"""What the counts in the rows ought to be, recounted from scratch."""

from __future__ import annotations

from collections import Counter

from gateway.journal.columns import in_ranges, unpack, unpack_extents, unpack_pieces, unpack_staged
from gateway.journal.tables import Shape
from gateway.namespace import depth
from tests.namespace.world import World


def check(world: World) -> None:
    """Every count, every link between rows, and every row's right to be there."""
    _check_directories(world)
    _check_heights(world)
    _check_versions(world)
    _check_nodes(world)
    _check_buckets(world)
    _check_content(world)
    if world.mirror is not None:
        _check_mirror(world)


def _check_directories(world: World) -> None:
    entries = world.rows.tables["entry"].values()
    live: Counter[int] = Counter()
    count: Counter[int] = Counter()
    subdirs: Counter[int] = Counter()
    for entry in entries:
        live[entry.parent] += not entry.dead
        count[entry.parent] += 1
        subdirs[entry.parent] += entry.name.endswith(b"/")
    directories = world.rows.tables["dir"]
    for row in directories.values():
        assert (row.live, row.entries, row.subdirs) == (live[row.id], count[row.id], subdirs[row.id]), row
        if row.parent:
            above = world.rows.tables["entry"][(row.parent, row.name)]
            assert above.node == row.id and above.version == 0
            assert above.dead == (0 if row.live else 1)
            assert row.entries, f"an empty directory was left behind: {row}"
    assert {entry.parent for entry in entries} <= {row.id for row in directories.values()}


def _check_heights(world: World) -> None:
    """No directory is taller than its row says."""
    rows = world.rows.tables["dir"]
    heights: Counter[int] = Counter()
    for row in rows.values():
        node, height = row.parent, 1
        while node and heights[node] < height:
            heights[node] = height
            node, height = rows[(node,)].parent, height + 1
    for row in rows.values():
        assert heights[row.id] <= depth.height_of(row) or not row.parent, row


def _check_versions(world: World) -> None:
    versions = dict(world.rows.tables["version"])
    for entry in world.rows.tables["entry"].values():
        if entry.name.endswith(b"/"):
            continue
        assert entry.dead == (0 if entry.node else 1)
        nulls = [entry.version] if entry.null else []
        newer, at = entry.version, entry.older
        while at:
            version = versions.pop((entry.parent, entry.name, at))
            assert version.newer == newer and version.version < newer
            nulls += [version.version] if version.null else []
            newer, at = version.version, version.older
        assert nulls == ([entry.null_version] if entry.null_version else [])
    assert not versions, "versions that no entry leads to"


def _names(world: World) -> list:
    current = [each for each in world.rows.tables["entry"].values() if not each.name.endswith(b"/")]
    return [*current, *world.rows.tables["version"].values()]


def _check_nodes(world: World) -> None:
    links = Counter(each.node for each in _names(world) if each.node)
    assert {row.id: row.links for row in world.rows.tables["file"].values()} == dict(links)


def _check_buckets(world: World) -> None:
    bucket_of = {row.id: row.bucket for row in world.rows.tables["dir"].values()}
    files = world.rows.tables["file"]
    versions: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for each in _names(world):
        versions[bucket_of[each.parent]] += 1
        size[bucket_of[each.parent]] += files[(each.node,)].size if each.node else 0
    objects = Counter(
        bucket_of[each.parent]
        for each in world.rows.tables["entry"].values()
        if not each.name.endswith(b"/") and each.node
    )
    uploads = _open_uploads(world)
    for gone in world.rows.tables["gone"].values():
        assert gone.uploads == uploads.pop((gone.name, gone.id)) > 0, gone
    for row in world.rows.tables["bucket"].values():
        name = row.name
        assert (row.objects, row.versions, row.size, row.uploads) == (
            objects[name], versions[name], size[name], uploads.pop((name, row.id), 0),
        )  # fmt: skip
    assert not uploads, "uploads of a bucket that is gone, and nobody cuts them off"


def _open_uploads(world: World) -> Counter[tuple[str, int]]:
    """How many there are, by their bucket's name and id: the last of the name that was made before them."""
    made = [*world.rows.tables["bucket"].values(), *world.rows.tables["gone"].values()]
    return Counter(
        (
            upload.bucket,
            max((each.id for each in made if each.name == upload.bucket and each.id < upload.id), default=0),
        )
        for upload in world.rows.tables["upload"].values()
        if upload.state == 0
    )


def _check_content(world: World) -> None:
    """Counts of runs and bodies: their holders, and what let go of them but is not taken down yet."""
    held: Counter[tuple[int, int]] = Counter()
    tables = world.rows.tables
    uploads = {upload.id: unpack(upload.joined) or () for upload in tables["upload"].values()}
    parts = [part for part in tables["part"].values() if not in_ranges(part.number, uploads[part.upload])]
    for row in [*tables["file"].values(), *parts, *tables["freed"].values()]:
        held[(row.shape, row.content)] += 1
    for upload in tables["upload"].values():
        held.update((Shape.BODY, body) for body in unpack_staged(upload.staged).bodies)
    cut = {row.content: row.cursor for row in tables["freed"].values() if row.shape == Shape.BODY}
    for body in tables["body"].values():
        assert body.refs == held[(Shape.BODY, body.id)], body
        for piece in unpack_pieces(body.pieces)[cut.get(body.id, 0) :]:
            held[(Shape.RUN, piece.run)] += 1
    live: Counter[bytes] = Counter()
    members: Counter[bytes] = Counter()
    for run in tables["run"].values():
        assert run.refs == held[(Shape.RUN, run.id)] > 0, run
        for extent in unpack_extents(run.extents):
            live[extent.block] += extent.length
        for block in {extent.block for extent in unpack_extents(run.extents)}:
            members[block] += 1
            assert (block, run.id) in tables["member"]
    for block in tables["block"].values():
        assert (block.live, block.members) == (live[block.id], members[block.id])
        assert (block.died == 0) == (block.members > 0)


def _check_mirror(world: World) -> None:
    for table in ("entry", "dir", "version"):
        stored = {tuple(row) for row in world.mirror.query(f"SELECT * FROM {table}")}
        assert stored == {tuple(row) for row in world.rows.tables[table].values()}
