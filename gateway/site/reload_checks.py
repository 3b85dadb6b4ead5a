"""Which backends may enter and leave the config of a site, by what the journal says of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.blocks.maintenance.inventory import sets_containing
from gateway.errors import Misconfigured
from gateway.journal.apply.work import unpack_ids
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.storage.keyring import JournalTables
from gateway.site.storage.refusals import TemporarilyRejected
from gateway.topology import Topology


def check_not_lost(before: Topology, after: Topology, rows: JournalTables) -> None:
    """Raise `Misconfigured` if *after* adds a backend with the name of a lost one: its blocks would count as lost."""
    lost = {name for (name,) in rows.query("SELECT name FROM backend WHERE lost = 1")}
    again = sorted(lost.intersection(after.backends.keys() - before.backends.keys()))
    if again:
        reason = "was given up as lost, and the name of a lost backend is never used again: choose another name"
        raise Misconfigured("\n".join(f"backends.{name}: {reason}" for name in again))


async def check_not_needed(before: Topology, after: Topology, journal: Path) -> None:
    """Raise `Misconfigured` if a backend that *after* removes is written to by a policy of *before*, or holds blocks: a
    block whose only copy is there could not be read. Raises `TemporarilyRejected` for blocks, which may be moved."""
    for name in before.backends.keys() - after.backends.keys():
        using = [policy.name for policy in before.policies.values() if name in before.acked_on(policy)]
        if using:
            raise Misconfigured(
                f"backends.{name}: is still written to, by {', '.join(using)}: drain it or remove it from the "
                "policies first, and remove it here once it is empty"
            )
        blocks = await asyncio.to_thread(_blocks_on, name, journal)
        if blocks:
            raise TemporarilyRejected(f"backends.{name}: still holds {blocks} block(s): remove it once it is empty")


async def check_none_missing(topology: Topology, journal: Path) -> None:
    """Raise `Misconfigured` if a backend that is not in *topology* holds blocks: it was removed while the site was not
    served."""
    missing = await asyncio.to_thread(_held_elsewhere, topology, journal)
    if missing:
        reasons = (
            f"backends.{name}: is not in the config, and it holds {blocks} block(s): add it again, or, if it is lost "
            f"for good, give it up with `entrepot backend lost {name} --forget`"
            for name, blocks in missing.items()
        )
        raise Misconfigured("\n".join(reasons))


def _held_elsewhere(topology: Topology, journal: Path) -> dict[str, int]:
    """Return the number of blocks on each backend that *topology* does not name."""
    store = ReadStore(JournalPaths(journal).database)
    try:
        names = [name for (name,) in store.query("SELECT name FROM backend WHERE lost = 0 ORDER BY name")]
    finally:
        store.close()
    counts = {name: _blocks_on(name, journal) for name in names if name not in topology.backends}
    return {name: blocks for name, blocks in counts.items() if blocks}


def _blocks_on(name: str, journal: Path) -> int:
    """Return the number of blocks that the backend holds, or that have strays there; 0 for a lost backend.

    Reads a row of each such block, so it runs in a thread."""
    store = ReadStore(JournalPaths(journal).database)
    try:
        rows = store.query("SELECT id FROM backend WHERE name = ? AND lost = 0", (name,))
        ids = {each for (each,) in rows}
        sets = {each for place in ids for each in sets_containing(store, place)}
        marks = ", ".join("?" * len(sets))
        held = int(store.query(f"SELECT count(*) FROM block WHERE backends IN ({marks})", tuple(sets))[0][0])
        leaving = store.query("SELECT strays, count(*) FROM work WHERE strays <> x'' GROUP BY strays")
        return held + sum(int(count) for strays, count in leaving if ids & {*unpack_ids(strays)})
    finally:
        store.close()
