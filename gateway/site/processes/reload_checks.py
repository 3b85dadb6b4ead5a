"""What a process of a served site does when its supervisor takes another config over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.blocks.maintenance.inventory import sets_containing
from gateway.errors import Misconfigured
from gateway.journal.apply.work import unpack_ids
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.processes.child import Child
from gateway.site.processes.control_channel import Message
from gateway.site.site import Site
from gateway.site.storage.keyring import JournalTables
from gateway.site.storage.refusals import TemporarilyRejected
from gateway.topology import Topology


def answer_supervisor(child: Child, site: Site) -> None:
    """Have *site* follow the config that the supervisor puts in force."""

    async def stand(message: Message) -> Message:
        await site.open_new_backends(await child.config_in(message))
        return {}

    async def leaving(message: Message) -> Message:
        busy = site.storage.backends_with_old_writes(message["backends"])
        if busy:
            told = "requests under way still write there, as policies had it when they began: try again later"
            raise TemporarilyRejected("\n".join(f"backends.{name}: {told}" for name in busy))
        return {}

    child.answers["stand"] = stand
    child.answers["leaving"] = leaving
    child.adopt = site.adopt


def see_that_none_was_lost(before: Topology, after: Topology, rows: JournalTables) -> None:
    """See that no backend is new that was given up before. Raises `Misconfigured`: whatever was put there would count
    as gone."""
    lost = {name for (name,) in rows.query("SELECT name FROM backend WHERE lost = 1")}
    again = sorted(lost.intersection(after.backends.keys() - before.backends.keys()))
    if again:
        told = "was given up as lost, and the name of such a one is never used again: take another"
        raise Misconfigured("\n".join(f"backends.{name}: {told}" for name in again))


async def see_that_none_is_needed(before: Topology, after: Topology, journal: Path) -> None:
    """See that every backend that leaves the config is empty, and that nobody writes there any more. Raises
    `Misconfigured`: a block whose only copy lies there could not be read."""
    for name in before.backends.keys() - after.backends.keys():
        using = [policy.name for policy in before.policies.values() if name in before.acked_on(policy)]
        if using:
            raise Misconfigured(
                f"backends.{name}: is still written to, by {', '.join(using)}: first let it drain, or take it out of "
                "the policies; then remove it once it is empty"
            )
        blocks = await asyncio.to_thread(_blocks_on, name, journal)
        if blocks:
            raise TemporarilyRejected(f"backends.{name}: still holds {blocks} block(s): remove it once it is empty")


async def see_that_none_is_missing(topology: Topology, journal: Path) -> None:
    """See that every backend that left the config while nobody served the site is empty. Raises `Misconfigured`."""
    missing = await asyncio.to_thread(_held_elsewhere, topology, journal)
    if missing:
        told = (
            f"backends.{name}: is not in the config, and {blocks} block(s) lie there: put it back, or, if it is gone "
            f"for good, give it up by `entrepot backend lost {name} --forget`"
            for name, blocks in missing.items()
        )
        raise Misconfigured("\n".join(told))


def _held_elsewhere(topology: Topology, journal: Path) -> dict[str, int]:
    """How many blocks lie on each backend that *topology* does not name."""
    store = ReadStore(JournalPaths(journal).database)
    try:
        names = [name for (name,) in store.query("SELECT name FROM backend WHERE lost = 0 ORDER BY name")]
    finally:
        store.close()
    found = {name: _blocks_on(name, journal) for name in names if name not in topology.backends}
    return {name: blocks for name, blocks in found.items() if blocks}


def _blocks_on(name: str, journal: Path) -> int:
    """How many blocks name the backend as one of those that hold them, or have bytes there still; in a thread, since it
    looks at all of them. Those of a backend that is lost do not count."""
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
