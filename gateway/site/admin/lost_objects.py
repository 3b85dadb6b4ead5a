"""A backend that is lost: which objects have bytes there and nowhere else, and having its copies counted as gone.

That the journal names another copy is not believed: the other backends are asked (`remaining`), unless the caller asks
not to.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from gateway.blocks.maintenance.remaining_copies import RemainingCopies, check_remaining_copies
from gateway.blocks.protocols import Progress, no_progress
from gateway.errors import InvalidArgument
from gateway.journal.columns import unpack, unpack_pieces
from gateway.journal.paths import JournalPaths
from gateway.journal.tables import WorkState
from gateway.namespace.version_ids import encode_version_id
from gateway.reconcile.commands import LoseBackend

if TYPE_CHECKING:
    from gateway.blocks.protocols import TableReader
    from gateway.site.site import Site

LISTED = 10_000
"""Names that are listed; more are counted."""
_WITHOUT_A_GOOD_COPY = f"id IN (SELECT block FROM work WHERE state = {WorkState.LOST:d})"


class Losses(NamedTuple):
    """What a backend alone has, and how much of that was checked."""

    backend: str
    """Empty: of what has no good copy left."""
    blocks: int
    bytes: int
    """Sealed."""
    objects: tuple[str, ...]
    """`s3://bucket/key`, and behind it which version or part of an upload."""
    more: int
    """Objects that are not listed."""
    forgotten: bool
    """Its copies count as gone."""
    present: int = 0
    """Blocks of it that another backend was asked for, and has."""
    absent: int = 0
    """Blocks among *blocks* that the journal names elsewhere, too, and that nobody else has."""
    unchecked: int = 0
    """Blocks that the journal names elsewhere, and that could not be asked for there, or were not to be."""
    away: tuple[str, ...] = ()
    """Why not: a sentence for each backend that could not be asked."""


async def losses(
    site: Site, name: str = "", *, forget: bool = False, check: bool = True, progress: Progress = no_progress
) -> Losses:
    """Find them; with *forget*, make that a record. Without a *name* those of which no good copy is left anywhere.
    Without *check* the other backends are not asked for the copies that the journal names there. Raises
    `InvalidArgument` for a backend that nobody knows."""
    if not name:
        if forget:
            raise InvalidArgument("which backend is to be forgotten? name it")
        return await _listed(site, Losses("", 0, 0, (), 0, False), _WITHOUT_A_GOOD_COPY, ())
    number, gone, forgotten = await _gone_with(site, name, forget)
    if check:
        remaining = await check_remaining_copies(site.store, site.storage.backends, number, gone, progress)
    else:
        remaining = RemainingCopies(unchecked=_named_elsewhere(site.store, number, gone))
    sets = _sets(site.store, number, gone, elsewhere=False)
    which = f"backends IN ({', '.join(map(str, sets))}) OR id IN (SELECT id FROM temp.absent)"
    away = tuple(f"{each} cannot be asked: {why}" for each, why in sorted(remaining.away.items()))
    found = Losses(
        name, 0, 0, (), 0, forgotten, remaining.present, len(remaining.absent), remaining.unchecked, away
    )  # fmt: skip
    return await _listed(site, found, which, remaining.absent)


def given_up(store: TableReader) -> frozenset[str]:
    """The names of the backends that were given up as lost."""
    return frozenset(name for (name,) in store.query("SELECT name FROM backend WHERE lost = 1"))


def lost_by_the_journal(store: TableReader, database: Path) -> Losses:
    """What lies on backends that were given up and nowhere else, by the journal in the file *database* alone: no other
    backend is asked. In a thread: walks every name."""
    names: dict[int, str] = dict(store.query("SELECT id, name FROM backend WHERE lost = 1"))
    gone = set(names)
    only = sorted({each for place in gone for each in _sets(store, place, gone, elsewhere=False)})
    both = sorted({each for place in gone for each in _sets(store, place, gone, elsewhere=True)})
    blocks, size, objects = _search(database, f"backends IN ({', '.join(map(str, only))})", ())
    marks = ", ".join("?" * len(both))
    ((unchecked,),) = store.query(f"SELECT count(*) FROM block WHERE backends IN ({marks}) AND died = 0", both)
    return Losses(
        " and ".join(sorted(names.values())), blocks, size, objects[:LISTED], max(0, len(objects) - LISTED), True,
        unchecked=unchecked,
    )  # fmt: skip


async def _gone_with(site: Site, name: str, forget: bool) -> tuple[int, set[int], bool]:
    """The id of that backend, those that do not count once it is lost, and whether it counts as lost."""
    rows = site.store.query("SELECT id, lost FROM backend WHERE name = ?", (name,))
    if not rows:
        raise InvalidArgument(f"there is no backend {name!r}")
    ((number, lost),) = rows
    if forget and not lost:
        await site.journal.send(LoseBackend(name))
    gone = {number, *(each for (each,) in site.store.query("SELECT id FROM backend WHERE lost = 1"))}
    return number, gone, bool(lost or forget)


def _named_elsewhere(store: TableReader, place: int, gone: set[int]) -> int:
    """How many blocks of a backend the journal also names on others that count."""
    sets = _sets(store, place, gone, elsewhere=True)
    marks = ", ".join("?" * len(sets))
    return int(store.query(f"SELECT count(*) FROM block WHERE backends IN ({marks}) AND died = 0", sets)[0][0])


def _sets(store: TableReader, place: int, gone: set[int], *, elsewhere: bool) -> list[int]:
    """The ids of the sets that the backend is one of: those that also have one that counts, or those that do not."""
    return [
        set_id
        for members, set_id in store.query("SELECT members, id FROM backend_set")
        if place in unpack(members) and (not gone.issuperset(unpack(members))) == elsewhere
    ]


async def _listed(site: Site, found: Losses, which: str, absent: Sequence[bytes]) -> Losses:
    """*found* with the blocks of *which* that is true, as SQL has it, and the objects in them."""
    path = JournalPaths(site.journal_path).database
    blocks, size, objects = await asyncio.to_thread(_search, path, which, absent)
    return found._replace(
        blocks=blocks, bytes=size, objects=objects[:LISTED], more=max(0, len(objects) - LISTED)
    )  # fmt: skip


def _search(path: Path, which: str, absent: Sequence[bytes]) -> tuple[int, int, tuple[str, ...]]:
    """How many blocks there are of *which* that is true, as SQL has it, their bytes, and the objects in them. SQL finds
    the ids of *absent* in `temp.absent`. In a thread: walks every name."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("CREATE TEMP TABLE absent (id BLOB PRIMARY KEY) WITHOUT ROWID")
        connection.executemany("INSERT INTO temp.absent VALUES (?)", ((each,) for each in absent))
        connection.execute("BEGIN")
        inside = f"({which}) AND died = 0"
        count, size = connection.execute(
            f"SELECT count(*), coalesce(sum(size), 0) FROM block WHERE {inside}"
        ).fetchone()
        runs = connection.execute(f"SELECT run FROM member WHERE block IN (SELECT id FROM block WHERE {inside})")
        contents = {(1, run) for (run,) in runs}
        for body, packed in connection.execute("SELECT id, pieces FROM body"):
            if any((1, piece.run) in contents for piece in unpack_pieces(packed)):
                contents.add((2, body))
        return count, size, tuple(sorted(set(_names(connection, contents)))) if contents else ()
    finally:
        connection.close()


def _names(connection: sqlite3.Connection, contents: set[tuple[int, int]]) -> Iterator[str]:
    """Of all that has one of these contents."""
    files = connection.execute("SELECT id, shape, content FROM file WHERE shape > 0")
    nodes = {node for node, *content in files if tuple(content) in contents}
    for parent, name, node in connection.execute("SELECT parent, name, node FROM entry WHERE node > 0"):
        if node in nodes:
            yield address(connection, parent, name)
    for parent, name, node, version in connection.execute("SELECT parent, name, node, version FROM version"):
        if node in nodes:
            yield f"{address(connection, parent, name)} (version {encode_version_id(version)})"
    parts = connection.execute(
        "SELECT u.bucket, u.key, p.number, p.shape, p.content FROM part p JOIN upload u ON u.id = p.upload "
        "WHERE u.state = 0"
    )
    for bucket, key, number, *content in parts:
        if tuple(content) in contents:
            yield f"s3://{bucket}/{key.decode(errors='replace')} (part {number} of an upload)"


def address(connection: sqlite3.Connection, parent: int, name: bytes) -> str:
    """Where *name* in the directory *parent* stands, for people."""
    key, bucket = name, "?"
    while parent:
        row = connection.execute("SELECT bucket, parent, name FROM dir WHERE id = ?", (parent,)).fetchone()
        if row is None:
            break
        bucket, parent, own = row
        key = own + key
    return f"s3://{bucket}/{key.decode(errors='replace')}"


def spell(found: Losses) -> list[str]:
    """For people."""
    lines = [*found.objects, *([f"and {found.more} more"] if found.more else [])]
    if not found.backend:
        return [*lines, f"{found.blocks} block(s), {found.bytes} bytes have no good copy left"]
    lines.append(f"{found.blocks} block(s), {found.bytes} bytes lie on {found.backend} and nowhere else")
    lines += _checked(found)
    if found.forgotten:
        lines.append(f"copies on {found.backend} count as gone; entrepot status says how far the others have come")
    elif not found.blocks and not found.unchecked:
        lines.append("nothing would be lost with it")
    return lines


def _checked(found: Losses) -> list[str]:
    """What is said of the other copies that the journal names."""
    lines = []
    if found.absent:
        lines.append(
            f"{found.absent} of these have another copy by the journal, which was not found: "
            f"`entrepot fsck --mend` has such copies made anew while {found.backend} is there"
        )
    if found.present:
        lines.append(f"{found.present} block(s) on {found.backend} were asked for elsewhere, and are there")
    lines += found.away
    if found.unchecked:
        lines.append(
            f"{found.unchecked} block(s) on {found.backend} have another copy by the journal alone: "
            "nobody checked that it is there, so they may be lost, too"
        )
    return lines
