"""The objects that would be lost with a backend, and the command that gives a backend up.

The journal names a copy because a backend once confirmed it, which does not prove that the copy still exists. So the
other backends are asked for each block that the journal also names there (`remaining_copies`), unless the caller wants
the journal's word alone.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from gateway.blocks.maintenance.remaining_copies import RemainingCopies, check_remaining_copies
from gateway.blocks.protocols import Progress, no_progress
from gateway.errors import InvalidArgument
from gateway.journal.columns import unpack, unpack_pieces
from gateway.journal.paths import JournalPaths
from gateway.journal.tables import WorkState
from gateway.reconcile.commands import LoseBackend
from gateway.site.admin.object_addresses import addresses_of

if TYPE_CHECKING:
    from gateway.blocks.protocols import TableReader
    from gateway.site.site import Site

OBJECTS_MAX = 10_000
"""How many objects are listed. Others are only counted."""
_WITHOUT_A_GOOD_COPY = f"id IN (SELECT block FROM work WHERE state = {WorkState.LOST:d})"


class Losses(NamedTuple):
    """The blocks and objects that one backend alone has, or some backends alone, and how far that was checked."""

    backend: str
    """The backend's name, or several joined by "and". Empty: these are the blocks without any good copy."""
    blocks: int
    bytes: int
    """The size of these blocks, sealed."""
    objects: tuple[str, ...]
    """The objects with bytes in these blocks: `s3://bucket/key`, followed by the version or the part of an upload."""
    more: int
    """How many objects are not listed in `objects`."""
    forgotten: bool
    """Whether the backend was given up, so that its copies no longer count."""
    present: int = 0
    """Blocks on the backend that another backend has, which was asked."""
    absent: int = 0
    """How many of *blocks* the journal names on another backend, too, where they were not found."""
    unchecked: int = 0
    """Blocks that the journal names on another backend, too, which was not asked or could not be."""
    away: tuple[str, ...] = ()
    """One sentence for each backend that could not be asked, with the reason."""


class _Target(NamedTuple):
    """The backend that `find_losses` is about."""

    id: int
    excluded: frozenset[int]
    """The ids of the backends whose copies do not count as others: this one, and all that were given up."""
    forgotten: bool


class _Matches(NamedTuple):
    blocks: int
    bytes: int
    objects: tuple[str, ...]


async def find_losses(
    site: Site, name: str = "", *, forget: bool = False, check: bool = True, progress: Progress = no_progress
) -> Losses:
    """Return what the backend *name* alone has; without a *name*, the blocks that have no good copy anywhere.

    *forget*: also record that the backend is lost. *check*: ask the other backends for the copies that the journal
    names there. Raises `InvalidArgument` if the journal does not know the backend."""
    if not name:
        if forget:
            raise InvalidArgument("--forget needs the name of a backend")
        return await _with_matches(site, Losses("", 0, 0, (), 0, False), _WITHOUT_A_GOOD_COPY)
    target = await _resolve_target(site, name, forget)
    if check:
        remaining = await check_remaining_copies(
            site.store, site.storage.backends, target.id, target.excluded, progress
        )
    else:
        remaining = RemainingCopies(unchecked=_count_named_elsewhere(site.store, target))
    losses = Losses(
        backend=name,
        blocks=0,
        bytes=0,
        objects=(),
        more=0,
        forgotten=target.forgotten,
        present=remaining.present,
        absent=len(remaining.absent),
        unchecked=remaining.unchecked,
        away=tuple(f"{each} cannot be asked: {why}" for each, why in sorted(remaining.away.items())),
    )
    sets = _sets_containing(site.store, target.id, target.excluded, with_others=False)
    condition = f"backends IN ({', '.join(map(str, sets))}) OR id IN (SELECT id FROM temp.absent)"
    return await _with_matches(site, losses, condition, remaining.absent)


def lost_backends(store: TableReader) -> frozenset[str]:
    """Return the names of the backends that were given up."""
    return frozenset(name for (name,) in store.query("SELECT name FROM backend WHERE lost = 1"))


def losses_by_journal(store: TableReader, database: Path) -> Losses:
    """Return what the backends that were given up alone have, according to the journal in the file *database*. No
    backend is asked. Called in a thread, since it reads every name."""
    names: dict[int, str] = dict(store.query("SELECT id, name FROM backend WHERE lost = 1"))
    lost = names.keys()
    alone = sorted({each for backend in lost for each in _sets_containing(store, backend, lost, with_others=False)})
    shared = sorted({each for backend in lost for each in _sets_containing(store, backend, lost, with_others=True)})
    matches = _find_matches(database, f"backends IN ({', '.join(map(str, alone))})", ())
    losses = Losses(
        backend=" and ".join(sorted(names.values())),
        blocks=0,
        bytes=0,
        objects=(),
        more=0,
        forgotten=True,
        unchecked=_count_blocks(store, shared),
    )
    return _add_matches(losses, matches)


async def _resolve_target(site: Site, name: str, forget: bool) -> _Target:
    """Look up the backend *name*; with *forget*, give it up."""
    rows = site.store.query("SELECT id, lost FROM backend WHERE name = ?", (name,))
    if not rows:
        raise InvalidArgument(f"there is no backend {name!r}")
    ((backend_id, lost),) = rows
    if forget and not lost:
        await site.journal.send(LoseBackend(name))
    excluded = {backend_id, *(each for (each,) in site.store.query("SELECT id FROM backend WHERE lost = 1"))}
    return _Target(backend_id, frozenset(excluded), bool(lost or forget))


def _count_named_elsewhere(store: TableReader, target: _Target) -> int:
    """Return how many blocks on the backend the journal names on others, too."""
    return _count_blocks(store, _sets_containing(store, target.id, target.excluded, with_others=True))


def _count_blocks(store: TableReader, sets: list[int]) -> int:
    """Return how many live blocks are on one of these sets of backends."""
    marks = ", ".join("?" * len(sets))
    return int(store.query(f"SELECT count(*) FROM block WHERE backends IN ({marks}) AND died = 0", sets)[0][0])


def _sets_containing(store: TableReader, backend_id: int, excluded: Collection[int], *, with_others: bool) -> list[int]:
    """Return the ids of the sets of backends that contain this one. *with_others* selects the sets with a member that
    is not *excluded*; otherwise the sets without one are returned."""
    return [
        set_id
        for packed, set_id in store.query("SELECT members, id FROM backend_set")
        if backend_id in (members := unpack(packed)) and any(each not in excluded for each in members) == with_others
    ]


async def _with_matches(site: Site, losses: Losses, condition: str, absent: Collection[bytes] = ()) -> Losses:
    """Return *losses* with the blocks that match the SQL *condition*, and their objects."""
    database = JournalPaths(site.journal_path).database
    return _add_matches(losses, await asyncio.to_thread(_find_matches, database, condition, absent))


def _add_matches(losses: Losses, matches: _Matches) -> Losses:
    return losses._replace(
        blocks=matches.blocks,
        bytes=matches.bytes,
        objects=matches.objects[:OBJECTS_MAX],
        more=max(0, len(matches.objects) - OBJECTS_MAX),
    )


def _find_matches(database: Path, condition: str, absent: Collection[bytes]) -> _Matches:
    """Return the live blocks that match the SQL *condition*, and their objects. The condition finds the ids in *absent*
    in the table `temp.absent`. Called in a thread, since it reads every name."""
    connection = sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("CREATE TEMP TABLE absent (id BLOB PRIMARY KEY) WITHOUT ROWID")
        connection.executemany("INSERT INTO temp.absent VALUES (?)", ((each,) for each in absent))
        connection.execute("BEGIN")
        matching = f"({condition}) AND died = 0"
        count, size = connection.execute(
            f"SELECT count(*), coalesce(sum(size), 0) FROM block WHERE {matching}"
        ).fetchone()
        runs = connection.execute(f"SELECT run FROM member WHERE block IN (SELECT id FROM block WHERE {matching})")
        contents = {(1, run) for (run,) in runs}
        for body, packed in connection.execute("SELECT id, pieces FROM body"):
            if any((1, piece.run) in contents for piece in unpack_pieces(packed)):
                contents.add((2, body))
        objects = tuple(sorted(set(addresses_of(connection, contents)))) if contents else ()
        return _Matches(count, size, objects)
    finally:
        connection.close()
