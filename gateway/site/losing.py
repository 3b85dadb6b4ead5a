"""A backend that is lost: which objects have bytes there and nowhere else, and having its copies counted as gone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from gateway.errors import InvalidArgument
from gateway.journal.packed import pieces, unpack
from gateway.journal.paths import JournalPaths
from gateway.journal.tables import WorkState
from gateway.namespace.versions import spell as spell_version
from gateway.reconcile.commands import LoseBackend

if TYPE_CHECKING:
    from gateway.site.site import Site

LISTED = 10_000
"""Names that are listed; more are counted."""
_WITHOUT_A_GOOD_COPY = f"id IN (SELECT block FROM work WHERE state = {WorkState.LOST:d})"


class Losses(NamedTuple):
    """What a backend alone has."""

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


async def losses(site: Site, name: str = "", *, forget: bool = False) -> Losses:
    """Find them; with *forget*, make that a record. Without a *name* those of which no good copy is left anywhere.
    Raises `InvalidArgument` for a backend that nobody knows."""
    if not name and forget:
        raise InvalidArgument("which backend is to be forgotten? name it")
    which, forgotten = await _only_there(site, name, forget) if name else (_WITHOUT_A_GOOD_COPY, False)
    blocks, size, objects = await asyncio.to_thread(_search, JournalPaths(site.journal_path).database, which)
    return Losses(name, blocks, size, objects[:LISTED], max(0, len(objects) - LISTED), forgotten)


async def _only_there(site: Site, name: str, forget: bool) -> tuple[str, bool]:
    """Which blocks lie on that backend and on others that are lost, as SQL has it; and whether it counts as lost."""
    rows = site.store.query("SELECT id, lost FROM backend WHERE name = ?", (name,))
    if not rows:
        raise InvalidArgument(f"there is no backend {name!r}")
    ((number, lost),) = rows
    if forget and not lost:
        await site.journal.send(LoseBackend(name))
    gone = {number, *(each for (each,) in site.store.query("SELECT id FROM backend WHERE lost = 1"))}
    sets = [
        set_id
        for members, set_id in site.store.query("SELECT members, id FROM backend_set")
        if number in unpack(members) and gone.issuperset(unpack(members))
    ]
    return f"backends IN ({', '.join(map(str, sets))})", bool(lost or forget)


def _search(path: Path, which: str) -> tuple[int, int, tuple[str, ...]]:
    """How many blocks there are of *which* that is true, as SQL has it, their bytes, and the objects in them. In a
    thread: walks every name."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("BEGIN")
        inside = f"{which} AND died = 0"
        count, size = connection.execute(
            f"SELECT count(*), coalesce(sum(size), 0) FROM block WHERE {inside}"
        ).fetchone()
        runs = connection.execute(f"SELECT m.run FROM block b JOIN member m ON m.block = b.id WHERE b.{inside}")
        contents = {(1, run) for (run,) in runs}
        for body, packed in connection.execute("SELECT id, pieces FROM body"):
            if any((1, piece.run) in contents for piece in pieces(packed)):
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
            yield _address(connection, parent, name)
    for parent, name, node, version in connection.execute("SELECT parent, name, node, version FROM version"):
        if node in nodes:
            yield f"{_address(connection, parent, name)} (version {spell_version(version)})"
    parts = connection.execute(
        "SELECT u.bucket, u.key, p.number, p.shape, p.content FROM part p JOIN upload u ON u.id = p.upload"
    )
    for bucket, key, number, *content in parts:
        if tuple(content) in contents:
            yield f"s3://{bucket}/{key.decode(errors='replace')} (part {number} of an upload)"


def _address(connection: sqlite3.Connection, parent: int, name: bytes) -> str:
    key, bucket = name, "?"
    while parent:
        row = connection.execute("SELECT bucket, parent, name FROM dir WHERE id = ?", (parent,)).fetchone()
        if row is None:
            break
        bucket, parent, own = row
        key = own + key
    return f"s3://{bucket}/{key.decode(errors='replace')}"


def spell(found: Losses) -> str:
    """For people."""
    lines = [*found.objects, *([f"and {found.more} more"] if found.more else [])]
    if not found.backend:
        return "\n".join([*lines, f"{found.blocks} block(s), {found.bytes} bytes have no good copy left"])
    lines.append(f"{found.blocks} block(s), {found.bytes} bytes lie on {found.backend} and nowhere else")
    if found.forgotten:
        lines.append(f"copies on {found.backend} count as gone; entrepot status says how far the others have come")
    elif not found.blocks:
        lines.append("nothing would be lost with it")
    return "\n".join(lines)
