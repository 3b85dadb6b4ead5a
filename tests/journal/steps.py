"""What may happen in a random history: each step draws one command, or none where it makes no sense."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gateway.blocks.commands.block_copies import NoteStrays, SetBlockBackends
from gateway.blocks.commands.release_content import ReleaseContent
from gateway.blocks.commands.rewrite import EndRewrite, MoveRewritten, PlaceRewrite, RewritePack
from gateway.blocks.commands.sweep import DeadBlock, ForgetBlocks, ForgetSession, SweepSession
from gateway.crypto import ring_key_commands
from gateway.identity import users
from gateway.journal import session_commands as site
from gateway.journal.apply.work import unpack_ids
from gateway.journal.columns import Extent, Rewritten, UploadAt, unpack, unpack_extents, unpack_rewritten, unpack_staged
from gateway.journal.records.bytes import NewBlock
from gateway.journal.tables import (
    ACCESS_KEY,
    BACKEND,
    BACKEND_SET,
    BLOCK,
    BODY,
    BUCKET,
    DELETED_BUCKET,
    DIR,
    ENTRY,
    FILE,
    PART,
    PLAN,
    RELEASE_QUEUE,
    REWRITE,
    RING_KEY,
    RUN,
    SESSION,
    TENANT,
    UPLOAD,
    USER,
    WORK,
    DocumentKind,
    FileKind,
    Shape,
    UploadState,
)
from gateway.namespace.commands import (
    buckets,
    complete,
    names,
    nodes,
    objects,
    prepare_completion,
    rename,
    uploads,
)
from gateway.namespace.commands import copy as copies
from gateway.namespace.multipart_digests import multipart_checksums
from gateway.namespace.version_ids import encode_version_id
from gateway.placement import commands as placement
from gateway.reconcile import commands as reconcile

if TYPE_CHECKING:
    from tests.journal.histories import History

MIB = 1 << 20
ACCOUNTS = ["alice", "bob", "carol"]
KEYS = [b"a", b"a/b", b"a/b/c", b"a/", b"x", b"x/y/z", b"deep/er/and/deeper", "schön".encode(), b"big"]
NAMES = [b"a", b"b", b"d", b"\xff"]
DIRS = [b"a/", b"d/", b"e/"]
BUCKETS = ["first", "second", "third"]
LEFT = "left"
"""A bucket that nothing is put into but uploads, so that it comes to go while some are open."""

Step = Callable[["History"], Any]
STEPS: dict[str, Step] = {}


def step(make: Callable[..., Any]) -> Callable[..., Any]:
    """*make* draws a command of the history and a bucket of it."""

    def drawn(history: History) -> Any:
        bucket = history.bucket()
        return bucket and make(history, history.random, bucket, (bucket.name, bucket.owner, False))

    STEPS[make.__name__] = drawn
    return make


# --- the site and who uses it -------------------------------------------------------------------------------------


@step
def the_site(h: History, r: random.Random, b: Any, who: Any) -> Any:
    ended = h.pick(SESSION, lambda row: row.state == 1)
    swept = h.pick(SESSION, lambda row: row.state == 2)
    other = h.pick(SESSION, lambda row: row.id != h.session)
    return r.choice(
        [
            site.OpenSession("cli"),
            other and site.EndSession(other.id, r.random() < 0.7),
            site.DrawToken(f"{r.getrandbits(128):032x}", r.getrandbits(63), r.choice(["", "aa", "bb"]), r.randrange(9)),
            ended and SweepSession(ended.id),
            swept and ForgetSession(swept.id),
            site.RaiseFeature(1),
            site.StartIncarnation() if not r.randrange(3) else None,
        ]
    )


@step
def people(h: History, r: random.Random, b: Any, who: Any) -> Any:
    key, name = h.pick(ACCESS_KEY), r.choice([*ACCOUNTS, "dora"])
    return r.choice(
        [
            users.AddTenant("other"),
            users.AddUser(name, "default", False, f"AK{r.randrange(99)}", b"s", "m1"),
            users.RemoveUser(name),
            users.AddAccessKey(name, f"AK{r.randrange(99)}", b"t", "m1"),
            key and users.RemoveAccessKey(key.access_key),
            users.SetUserDisabled(h.pick(USER).name, r.random() < 0.5),
            key and users.ResealAccessKeys(((key.access_key, key.secret, b"u", "m2"),)),
        ]
    )


@step
def keys_and_names(h: History, r: random.Random, b: Any, who: Any) -> Any:
    key, tenant, block, members = h.pick(RING_KEY), h.pick(TENANT), h.pick(BLOCK), h.pick(BACKEND_SET)
    return r.choice(
        [
            ring_key_commands.DrawRingKeyId(),
            ring_key_commands.AddRingKey(h.key_id, tenant.name, tenant.ring_key, b"w", "m1"),
            key and ring_key_commands.RewrapRingKeys(((key.id, key.wrapped, b"v", "m2"),)),
            placement.NameBackend(f"backend {r.randrange(4)}"),
            placement.NameBackendSet(tuple(range(1, r.randrange(2, 5)))),
            placement.NamePolicy(f"policy {r.randrange(4)}"),
            block and SetBlockBackends(block.id, block.backends, members.members),
        ]
    )


@step
def bucket_itself(h: History, r: random.Random, b: Any, who: Any) -> Any:
    empty = h.pick(BUCKET, lambda row: not row.versions) or b
    owner = h.pick(USER, lambda row: row.id == empty.owner)
    return r.choice(
        [
            h.make_bucket(r.choice([*BUCKETS, LEFT])),
            buckets.DropBucket(empty.name, owner.id, False, owner.name),
            buckets.SetVersioning(*who, r.choice([1, 2])),
            buckets.SetBucketSettings(*who, b"\x81\xa1a\x01"),
            buckets.SetBucketDocument(*who, r.choice(list(DocumentKind)), b"document %d" % r.randrange(3)),
            buckets.RemoveBucketDocument(*who, r.choice(list(DocumentKind))),
            buckets.TransferBucket(b.name, owner.name, h.pick(USER).name) if b == empty else None,
        ]
    )


# --- objects ------------------------------------------------------------------------------------------------------


@step
def put(h: History, r: random.Random, b: Any, who: Any) -> Any:
    size = r.choice([0, 5, 4096, 20 * MIB])
    return objects.PutObject(b.name, r.choice(KEYS), b.owner, False, size, h.etag(), *h.stored(size), 1, b"", b"", b"")


def put_deep(history: History) -> Any:
    """One of the keys is so deep that its directories keep their height."""
    asked = STEPS["put"](history)
    return replace(asked, key=b"tall/" * 40 + b"k") if asked and asked.key == KEYS[-1] else asked


STEPS["put again"] = put_deep


@step
def delete(h: History, r: random.Random, b: Any, who: Any) -> Any:
    versions = [row.version for row in h.shown.dump(ENTRY)] + [0]
    text = r.choice(["", "", "null", encode_version_id(r.choice(versions))])
    many = objects.DeleteObjects(*who, tuple(objects.Doomed(key) for key in r.sample(KEYS, 3)))
    return r.choice([objects.DeleteObject(b.name, r.choice(KEYS), b.owner, False, text), many])


@step
def describe(h: History, r: random.Random, b: Any, who: Any) -> Any:
    key = r.choice(KEYS)
    make = r.choice([objects.SetTags, objects.SetHeaders])
    return make(b.name, key, b.owner, False, "", b"\x81\xa1a\xa1b")


@step
def copy(h: History, r: random.Random, b: Any, who: Any) -> Any:
    return copies.CopyObject(
        b.name, r.choice(KEYS), b.owner, False, copies.Source(r.choice(BUCKETS[:2]), r.choice(KEYS))
    )


@step
def move(h: History, r: random.Random, b: Any, who: Any) -> Any:
    return copies.MoveObject(b.name, r.choice(KEYS), b.owner, False, r.choice(BUCKETS[:2]), r.choice(KEYS))


@step
def upload(h: History, r: random.Random, b: Any, who: Any) -> Any:
    at = h.pick(BUCKET, lambda row: row.name in (LEFT, b.name))
    return uploads.CreateUpload(at.name, r.choice(KEYS), at.owner, False, "", "", b"", b"")


@step
def part(h: History, r: random.Random, b: Any, who: Any) -> Any:
    row = h.pick(UPLOAD, lambda row: row.state == UploadState.OPEN)
    if row is None:
        return None
    head = (row.bucket, row.key, row.owner, False, encode_version_id(row.id), r.choice([1, 2, 3]))
    if not r.randrange(2):
        source = h.pick(FILE, lambda row: row.size >= 8 * MIB and row.shape == Shape.RUN)
        named = source and h.pick(ENTRY, lambda row: row.node == source.id)
        at = named and h.pick(DIR, lambda row: row.id == named.parent and row.parent == 0)
        if at and named.name:
            wanted = copies.Source(at.bucket, named.name)
            return copies.CopyPart(*head, wanted, 3, 6 * MIB, h.etag(), 2**64 - 1, "")
    size = r.choice([6 * MIB, 6 * MIB, 1])
    return uploads.PutPart(*head, size, h.etag(), *h.stored(size), 1, 2**64 - 1, "")


STEPS["another part"] = STEPS["part"]


def _prepared(h: History, r: random.Random, asked: complete.CompleteUpload, row: Any, parts: list[Any]) -> Any:
    """One of the commands of `preparing.prepared`, whatever the sizes of the parts: the next one that would be sent."""
    checksums = multipart_checksums(parts, row.checksum, row.checksum_type)
    bodies = {each.id: each.pieces for each in h.shown.dump(BODY)}
    slices, completion = prepare_completion.completion_commands(asked, row, parts, checksums, bodies)
    if r.randrange(4):
        found = unpack_staged(row.staged)
        done = len(found.bodies) if slices and found.digest == slices[0].digest else 0
        return slices[done] if done < len(slices) else completion
    return r.choice([*slices, completion])


@step
def end_upload(h: History, r: random.Random, b: Any, who: Any) -> Any:
    row = h.pick(UPLOAD)
    if row is None:
        return None
    head = (row.bucket, row.key, row.owner, False, encode_version_id(row.id))
    parts = [each for each in h.shown.dump(PART) if each.upload == row.id]
    if r.randrange(4) and parts:
        some = parts if r.randrange(3) else parts[:1]
        named = tuple(complete.WantedPart(each.number, each.etag) for each in some)
        asked = complete.CompleteUpload(*head, named)
        if row.state == UploadState.OPEN and (r.randrange(2) or any(each.shape == Shape.BODY for each in some)):
            return _prepared(h, r, asked, row, some)
        return asked
    if row.state == UploadState.OPEN:
        return uploads.AbortUpload(*head)
    numbers = tuple(each.number for each in parts)
    return uploads.DropParts(*head[:2], row.id, numbers) if numbers else uploads.ForgetUpload(*head[:2], row.id)


@step
def complete_what_was_copied(h: History, r: random.Random, b: Any, who: Any) -> Any:
    copied = {each.upload for each in h.shown.dump(PART) if each.shape == Shape.BODY}
    row = h.pick(UPLOAD, lambda row: row.id in copied and row.state == UploadState.OPEN)
    if row is None:
        return None
    parts = [each for each in h.shown.dump(PART) if each.upload == row.id]
    named = tuple(complete.WantedPart(each.number, each.etag) for each in parts)
    asked = complete.CompleteUpload(row.bucket, row.key, row.owner, False, encode_version_id(row.id), named)
    return _prepared(h, r, asked, row, parts)


STEPS["complete again what was copied"] = STEPS["complete_what_was_copied"]


@step
def cut_uploads_off(h: History, r: random.Random, b: Any, who: Any) -> Any:
    gone = h.pick(DELETED_BUCKET)
    if gone is None:
        return None
    of_the_name = [UploadAt(row.key, row.id) for row in h.shown.dump(UPLOAD) if row.bucket == gone.name]
    return uploads.CutUploadsOff(gone.id, tuple(r.sample(of_the_name, r.randrange(len(of_the_name) + 1))))


# --- POSIX --------------------------------------------------------------------------------------------------------


@step
def make_name(h: History, r: random.Random, b: Any, who: Any) -> Any:
    at, to, entry = h.directory(b).id, h.directory(b).id, h.named(b)
    return r.choice(
        [
            names.Mkdir(*who, at, r.choice(DIRS), 0o750, 1, 2),
            names.Mknod(*who, at, r.choice(NAMES), int(r.choice([FileKind.FILE, FileKind.FIFO])), 0o640, 1, 2),
            names.Symlink(*who, at, r.choice(NAMES), b"../there", 1, 2),
            entry and names.Link(*who, entry.parent, entry.name, to, r.choice(NAMES)),
            entry and nodes.Clone(*who, entry.parent, entry.name, to, r.choice(NAMES), 0o600, 3, 4),
        ]
    )


@step
def change_name(h: History, r: random.Random, b: Any, who: Any) -> Any:
    entry, to = h.named(b), h.directory(b)
    if entry is None:
        return None
    if entry.name.endswith(b"/"):
        moved = rename.Rename(*who, entry.parent, entry.name, to.id, r.choice(DIRS), r.choice([0, 1, 2]))
        return r.choice([names.Rmdir(*who, entry.parent, entry.name), moved])
    moved = rename.Rename(*who, entry.parent, entry.name, to.id, r.choice(NAMES), r.choice([0, 1, 2]))
    return r.choice([names.Unlink(*who, entry.parent, entry.name), moved, moved])


@step
def change_node(h: History, r: random.Random, b: Any, who: Any) -> Any:
    file, directory = h.file(b), h.directory(b)
    node, is_dir = (directory.id, True) if r.randrange(2) or file is None else (file.id, False)
    changed = None
    if file is not None:
        size = r.choice([0, 10, 9 * MIB])
        layout = ((0, 0, file.size // 2), (1, 0, size), (0, 0, file.size))
        changed = nodes.SetContent(*who, file.id, file.etag, layout, *h.stored(size), 1, b"")
    return r.choice(
        [
            nodes.SetAttributes(*who, node, is_dir, mode=0o700, mtime_ns=5),
            nodes.SetXattr(*who, node, is_dir, b"user.a", b"b"),
            nodes.RemoveXattr(*who, node, is_dir, b"user.a"),
            changed,
        ]
    )


# --- what works in the background -----------------------------------------------------------------------------------


@step
def take_down(h: History, r: random.Random, b: Any, who: Any) -> Any:
    freed = [row for row in h.shown.dump(RELEASE_QUEUE) if row.shape != Shape.NONE]
    some = r.sample(freed, min(len(freed), 6))
    return ReleaseContent(tuple((row.id, r.choice([1, 64])) for row in some)) if some else None


@step
def forget_blocks(h: History, r: random.Random, b: Any, who: Any) -> Any:
    dead = [row for row in h.shown.dump(BLOCK) if row.died]
    return ForgetBlocks(tuple(DeadBlock(row.id, row.died) for row in dead[:5])) if dead else None


@step
def compact(h: History, r: random.Random, b: Any, who: Any) -> Any:
    run = h.pick(RUN)
    if run is None:
        return None
    before = unpack_extents(run.extents)
    nths = tuple(sorted(r.sample(range(len(before)), r.randrange(1, len(before) + 1))))
    h.drawn += 1
    block = h.session.to_bytes(8, "big") + h.drawn.to_bytes(16, "big")
    copies = tuple(Rewritten(run.id, nth, before[nth], Extent(block, 64, 0, before[nth].length)) for nth in nths)
    due = h.at_ns if not r.randrange(3) else 0
    sources = tuple(dict.fromkeys(before[nth].block for nth in nths))
    return RewritePack(NewBlock(block, 1, 99, 7, h.pick(BACKEND_SET).id, due), run.policy, sources, copies)


@step
def go_on_compacting(h: History, r: random.Random, b: Any, who: Any) -> Any:
    row = h.pick(REWRITE)
    block = row and h.pick(BLOCK, lambda each: each.id == row.block)
    if block is None:
        return row and EndRewrite(row.block)
    if not row.placed_ns:
        return PlaceRewrite(row.block, h.at_ns, block.backends)
    olds = (h.pick(BLOCK, lambda each, old=old: each.id == old) for old in unpack(row.sources))
    sources = tuple((old.id, old.backends) for old in olds if old is not None)
    move = MoveRewritten(row.block, row.placed_ns, tuple(unpack_rewritten(row.copies)), sources)
    backend = h.pick(BACKEND)
    return r.choice([move, move, EndRewrite(row.block, (backend.id,) if backend else ())])


# --- copies -------------------------------------------------------------------------------------------------------


@step
def plan_copies(h: History, r: random.Random, b: Any, who: Any) -> Any:
    plan, block, backend = h.pick(PLAN), h.pick(BLOCK), h.pick(BACKEND)
    before, fingerprint = (plan.after, plan.fingerprint) if plan and r.randrange(4) else (b"", b"print")
    blocks = (block.id,) if block else ()
    return r.choice(
        [
            reconcile.AdvancePlan(fingerprint, before, b"m", r.randrange(3), r.randrange(2), blocks, h.at_ns),
            block and reconcile.SuspectCopy(block.id, r.choice([1, 2]), "it rots"),
            block and NoteStrays(((block.id, r.choice([1, 2])),)),
            reconcile.LoseBackend(backend.name) if not r.randrange(9) else None,
        ]
    )


@step
def work_on_copies(h: History, r: random.Random, b: Any, who: Any) -> Any:
    work = h.pick(WORK)
    block = work and h.pick(BLOCK, lambda row: row.id == work.block)
    if block is None:
        return None
    was = next(unpack_ids(row.members) for row in h.shown.dump(BACKEND_SET) if row.id == block.backends)
    members = r.choice([(1,), (1, 2), (2, 1), (2, 3)])
    return r.choice(
        [
            reconcile.BeginWork((reconcile.Begin(block.id, block.backends, (r.choice([1, 2, 3]),)),)),
            reconcile.SetBlockHolders(
                (reconcile.SetHolders(block.id, block.backends, was, members, bool(r.randrange(2))),)
            ),
            reconcile.FinishWork((reconcile.Finish(block.id, block.backends, unpack_ids(work.strays)),)),
            reconcile.FailWork((reconcile.Fail(block.id, h.at_ns, r.randrange(3), work.attempts + 1, "away"),)),
            reconcile.ClearCopies(block.id, (1, 2)),
            reconcile.KeepOldCopies((reconcile.KeepOld(block.id, block.backends, h.at_ns, h.at_ns + 5),)),
            reconcile.DropCopies((reconcile.Drop(block.id, block.backends, was, was[:1], work.placed_ns),)),
        ]
    )
