"""Sites whose blocks lie in several places, and journals filled in bulk.

A site here has the local backend `disk` in the cluster `home`, where the gateway stands, and others: local ones, or
buckets of a bare cloud. `stock` names blocks in its journal as PUTs would, by the journal's own commands, while nobody
serves it: a million of them in a minute or two, with or without bytes behind them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.config import load
from gateway.crypto.sealing import HEADER_BYTES, RANDOM_BYTES, SESSION_BYTES, Sealed, Sealer, sealed_length
from gateway.journal.columns import Checksum, Extent, pack, pack_list
from gateway.journal.paths import JournalPaths
from gateway.journal.records.bytes import NewBlock
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.server.server import hold_lock
from gateway.journal.session_commands import COMMANDS as JOURNAL_COMMANDS
from gateway.journal.session_commands import EndSession, OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.namespace.commands.buckets import MakeBucket
from gateway.namespace.commands.objects import PutObject
from gateway.site.admin.create_site import create_site
from gateway.site.commands import COMMANDS
from gateway.site.paths import journal_folder, master_key
from gateway.site.site import Site
from gateway.site.storage.keyring import Keyring
from tests.endpoint import ACCESS_KEY, SECRET_KEY

BUCKET = "bench"
CHECKSUMS = pack_list([Checksum("CRC64NVME", "FULL_OBJECT", "AAAAAAAAAAA=")])
BATCH_BLOCKS = 4_000
_CLUSTERS = """\
[clusters.home]
[clusters.away]

[[lines]]
clusters = ["home", "away"]
latency_seconds = 0.03
bandwidth = "50 MB/s"
"""


@dataclass(frozen=True)
class Kept:
    """A policy: what answers a write, and what keeps it in the end."""

    ack: Sequence[str]
    keep: Sequence[str]


def make_site(site: Path, places: Mapping[str, str], policies: Mapping[str, Kept], more: str = "") -> None:
    """A new site; all that it names is known to its journal, and claimed. As `write_config`."""
    asyncio.run(create_site(site, access_key=ACCESS_KEY, secret=SECRET_KEY))
    (site / "far.secret").write_text("benchbench")
    write_config(site, places, policies, more)

    async def open_once() -> None:
        async with await Site.open(site, kind="cli"):
            pass

    asyncio.run(open_once())


def write_config(site: Path, places: Mapping[str, str], policies: Mapping[str, Kept], more: str = "") -> None:
    """*places*: the backends beside `disk` by name, each with the address of its cloud, or empty for a local one."""
    config = site / "entrepot.toml"
    head = config.read_text().partition("\n[clusters.")[0].replace("[site]\nname", '[site]\ncluster = "home"\nname')
    parts = [head, _CLUSTERS, _place("disk", ""), *(_place(name, url) for name, url in places.items())]
    for name, kept in policies.items():
        parts.append(f"[policies.{name}]\nack = {list(kept.ack)}\nkeep = {list(kept.keep)}\n")
    config.write_text("\n".join([*parts, more]).replace("'", '"'))


def _place(name: str, url: str) -> str:
    if not url:
        path = "blocks" if name == "disk" else name
        return f'[backends.{name}]\ntype = "local"\ncluster = "home"\npath = "{path}"\n'
    return (
        f'[backends.{name}]\ntype = "s3"\ncluster = "away"\nendpoint = "{url}"\nbucket = "{BUCKET}"\n'
        f'prefix = "{name}"\nregion = "us-east-1"\naccess_key = "bench"\nsecret_key_file = "far.secret"\n'
    )


def stock(
    site: Path,
    blocks: int,
    *,
    policy: str = "default",
    held_by: Sequence[str] = ("disk",),
    per_object: int = 1,
    plain: int = 4096,
    put: Callable[[Sealed], Awaitable[None]] | None = None,
    runner: asyncio.Runner | None = None,
) -> None:
    """So many blocks of *plain* bytes in the journal, written under *policy*, *per_object* of them to an object, that
    lie where they are said to be settled. *put* stores the bytes of each, on the loop of *runner*; without it there are
    none."""
    config = load(site)
    paths = JournalPaths(journal_folder(site, config))
    with hold_lock(paths):
        store = SqliteStore(paths.database)
        reads = ReadStore(paths.database)
        try:
            local = InlineCommitter(store, {**JOURNAL_COMMANDS, **COMMANDS})
            user, name, tenant = reads.query_one("SELECT id, name, tenant FROM user")
            (policy_id,) = reads.query_one("SELECT id FROM policy WHERE name = ?", (policy,))
            ids = [reads.query_one("SELECT id FROM backend WHERE name = ?", (each,))[0] for each in held_by]
            (set_id,) = reads.query_one("SELECT id FROM backend_set WHERE members = ?", (pack(sorted(ids)),))
            if not reads.query("SELECT 1 FROM bucket WHERE name = ?", (BUCKET,)):
                local.run(MakeBucket(BUCKET, user, name, tenant, "us-east-1", policy_id))
            session = local.run(OpenSession("bench"))
            key = Keyring(master_key(site, config), reads).active(tenant)
            made = 0
            while made < blocks:
                few = min(BATCH_BLOCKS, blocks - made)
                if put is None:
                    sealed = [_hollow(session, made + each, plain) for each in range(few)]
                else:
                    sealed = [_whole(Sealer(key.key, key.id, session, key.mode), plain) for _ in range(few)]
                    (runner or asyncio).run(_put_all(sealed, put))
                local.run_all(
                    [
                        _object(user, policy_id, set_id, key.id, sealed[at : at + per_object], plain)
                        for at in range(0, few, per_object)
                    ],
                    session,
                )
                made += few
                store.checkpoint(idle=False)
            local.run(EndSession(session))
            store.checkpoint(idle=True)
        finally:
            reads.close()
            store.close()


def _hollow(session: int, number: int, plain: int) -> Sealed:
    """A block that says so."""
    drawn = number.to_bytes(6, "big") + os.urandom(RANDOM_BYTES - 6)  # ascending, so that the table grows at its end
    return Sealed(session.to_bytes(SESSION_BYTES, "big") + drawn, [], HEADER_BYTES + sealed_length(plain), 0)


def _whole(sealer: Sealer, plain: int) -> Sealed:
    sealer.add([os.urandom(plain)])
    return sealer.finish()


async def _put_all(sealed: Sequence[Sealed], put: Callable[[Sealed], Awaitable[None]]) -> None:
    slots = asyncio.Semaphore(64)

    async def one(each: Sealed) -> None:
        async with slots:
            await put(each)
            each.buffers.clear()

    await asyncio.gather(*(one(each) for each in sealed))


def _object(user: int, policy: int, set_id: int, ring_key: int, sealed: Sequence[Sealed], plain: int) -> PutObject:
    key = b"stock/" + sealed[0].block_id.hex().encode()
    return PutObject(
        BUCKET, key, user, True, plain * len(sealed), os.urandom(16).hex(),
        tuple(Extent(each.block_id, HEADER_BYTES, 0, plain) for each in sealed),
        tuple(NewBlock(each.block_id, ring_key, each.size, each.crc32c, set_id) for each in sealed),
        policy, b"", CHECKSUMS, b"",
    )  # fmt: skip
