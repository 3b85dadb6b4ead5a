"""The load of the tests of kills: clients that write, copy, delete, read and upload in parts at random.

Each client is the only writer of its own keys; `shared/` and `once/` are everybody's. What it was told it enters in
the ledger. An upload in parts lives on over rounds, and so over kills.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from tests.flows.ledger import Attempt, Broken, Ledger, Part, Value
from tests.flows.wire import NotSent, Unanswered, Where, Wire, content, content_md5, expect, value_of
from tests.s3api.client import Reply, quoted

BUCKET = "kept"
KIB, MIB = 1 << 10, 1 << 20
PART_BYTES_MIN = 5 * MIB
AGAIN_SECONDS = 0.1
"""After a request without an answer."""
OWN = ("a", "b", "c", "d/e", "d/f", "d", "d//g", "h/", "i/j/k/l", "m n+&<ä", "o.", "p")
"""Keys of one client, below its name: also an object beside a directory of its name, and one inside a nameless one."""
SHARED = tuple(f"shared/{number}" for number in range(6))
ONCE = tuple(f"once/{number}" for number in range(8))


@dataclass
class Upload:
    """An upload in parts that was begun and acknowledged."""

    id: str
    key: str
    tag: str
    sizes: tuple[int, ...]
    parts: dict[int, bytes] = field(default_factory=dict)
    """The part's number → what was acknowledged, or will be sent until it is."""
    acknowledged: set[int] = field(default_factory=set)
    drafts: int = 0
    completing: Attempt | None = None
    """A completion without an answer."""
    aborting: bool = False

    @property
    def open(self) -> bool:
        """Nobody tried to end it."""
        return self.completing is None and not self.aborting

    def acknowledged_parts(self) -> dict[int, Part]:
        bodies = {number: self.parts[number] for number in self.acknowledged}
        return {number: (len(body), hashlib.md5(body).hexdigest()) for number, body in bodies.items()}

    def unanswered_parts(self) -> set[int]:
        return self.parts.keys() - self.acknowledged

    def whole(self) -> Value:
        """What it makes when it is complete."""
        bodies = [self.parts[number] for number in sorted(self.parts)]
        digests = b"".join(hashlib.md5(each).digest() for each in bodies)
        body = b"".join(bodies)
        etag = f"{hashlib.md5(digests).hexdigest()}-{len(bodies)}"
        return Value(self.tag, len(body), hashlib.md5(body).hexdigest(), etag)


class Client:
    """One of many, all of which share a ledger."""

    def __init__(self, name: str, where: Where, ledger: Ledger, seed: str) -> None:
        self.name = name
        self.upload: Upload | None = None
        self.uploads_unanswered: Counter[str] = Counter()
        """Uploads that may have been begun, by key."""
        self.own = [name, *(f"{name}/{key}" for key in OWN)]
        self.done: Counter[str] = Counter()
        """What was acknowledged, by verb."""
        self._ledger = ledger
        self._chance = random.Random(f"{seed}/{name}")
        self._wire = Wire(where, BUCKET, f"{seed}/{name}/wire")
        self._tags = (f"{name}-{number}" for number in itertools.count(1))
        self._verbs: tuple[Callable[[], Awaitable[None]], ...]
        self._verbs, self._weights = zip(
            (self._put, 50), (self._delete, 8), (self._delete_many, 4), (self._copy, 10), (self._swap, 12),
            (self._get, 10), (self._step_upload, 12), (self._put_shared, 8), (self._get_shared, 5),
            (self._delete_shared, 2), (self._put_once, 4), (self._delete_once, 2), strict=True,
        )  # fmt: skip

    async def run(self, stop: asyncio.Event, pause_seconds: float = 0.0) -> None:
        """Do one thing after the other until *stop*; with *pause_seconds* in between, about."""
        while not stop.is_set():
            (verb,) = self._chance.choices(self._verbs, self._weights)
            pause = pause_seconds
            try:
                await verb()
            except Unanswered:
                pause += AGAIN_SECONDS
            if pause:
                await asyncio.sleep(pause * self._chance.uniform(0.5, 2))
        self._wire.close()

    # ---- a client's own keys ---------------------------------------------------------------------------------------

    async def _put(self) -> None:
        await self._put_to(self._chance.choice(self.own), self._size())

    async def _put_to(self, key: str, size: int) -> None:
        tag = next(self._tags)
        body = content(tag, size)
        attempt = self._ledger.begin(key, "PUT", value_of(tag, body))
        await self._write(attempt, 200, "PUT", key, body=body, **marks(tag))

    async def _delete(self) -> None:
        key = self._chance.choice(self.own)
        await self._write(self._ledger.begin(key, "DELETE", None), 204, "DELETE", key)

    async def _delete_many(self) -> None:
        keys = self._chance.sample(self.own, self._chance.randint(1, 6))
        attempts = {key: self._ledger.begin(key, "DeleteObjects", None) for key in keys}
        named = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        body = f"<Delete>{named}</Delete>".encode()
        try:
            reply = await self._wire.request("POST", query="delete=", body=body, content_md5=content_md5(body))
        except Unanswered as error:
            for attempt in attempts.values():
                self._leave(attempt, error)
            raise
        expect(reply, 200, "DeleteObjects")
        if b"<Error>" in reply.body:
            raise Broken(f"DeleteObjects refused a key: {reply.body.decode()}")
        for attempt in attempts.values():
            self._acknowledge(attempt)

    async def _copy(self) -> None:
        """Of one of its own to another: with new metadata, or with the source's."""
        source, key = self._chance.sample(self.own, 2)
        stands = self._ledger.certain(source)
        if stands is None:
            return
        replaces = self._chance.random() < 0.7
        tag = next(self._tags) if replaces else stands.tag
        attempt = self._ledger.begin(key, f"copy of {source!r}", Value(tag, stands.size, stands.md5, stands.etag))
        headers = {"x_amz_copy_source": f"/{BUCKET}/{quoted(source)}"}
        if replaces:
            headers |= {"x_amz_metadata_directive": "REPLACE", **marks(tag)}
        await self._write(attempt, 200, "PUT", key, **headers)

    async def _swap(self) -> None:
        """Overwrite or delete exactly what stands there: run twice, it would be refused."""
        key = self._chance.choice(self.own)
        stands = self._ledger.certain(key)
        if stands is None:
            return
        if self._chance.random() < 0.3:
            attempt = self._ledger.begin(key, "DELETE If-Match", None)
            await self._write(attempt, 204, "DELETE", key, if_match=f'"{stands.etag}"')
            return
        tag = next(self._tags)
        body = content(tag, self._size())
        attempt = self._ledger.begin(key, "PUT If-Match", value_of(tag, body))
        await self._write(attempt, 200, "PUT", key, body=body, if_match=f'"{stands.etag}"', **marks(tag))

    async def _get(self) -> None:
        await self._read(self._chance.choice(self.own))

    # ---- everybody's keys --------------------------------------------------------------------------------------------

    async def _put_shared(self) -> None:
        await self._put_to(self._chance.choice(SHARED), self._chance.randint(0, 40 * KIB))

    async def _get_shared(self) -> None:
        await self._read(self._chance.choice(SHARED + ONCE))

    async def _delete_shared(self) -> None:
        key = self._chance.choice(SHARED)
        await self._write(self._ledger.begin(key, "DELETE", None), 204, "DELETE", key)

    async def _put_once(self) -> None:
        """Only if nothing stands there."""
        key, tag = self._chance.choice(ONCE), next(self._tags)
        body = content(tag, self._chance.randint(0, 20 * KIB))
        attempt = self._ledger.begin(key, "PUT If-None-Match: *", value_of(tag, body), if_absent=True)
        await self._write(attempt, 200, "PUT", key, body=body, if_none_match="*", **marks(tag))

    async def _delete_once(self) -> None:
        key = self._chance.choice(ONCE)
        await self._write(self._ledger.begin(key, "DELETE", None), 204, "DELETE", key)

    # ---- uploads in parts: each call does one step -------------------------------------------------------------------

    async def _step_upload(self) -> None:
        upload = self.upload
        if upload is None:
            await self._begin_upload()
        elif upload.aborting or (upload.open and self._chance.random() < 0.03):
            await self._abort(upload)
        elif len(upload.acknowledged) < len(upload.sizes) or (upload.open and self._chance.random() < 0.1):
            await self._send_part(upload)
        else:
            await self._complete(upload)

    async def _begin_upload(self) -> None:
        key, tag = self._chance.choice(self.own), next(self._tags)
        try:
            reply = expect(
                await self._wire.request("POST", key, "uploads=", **marks(tag)), 200, "CreateMultipartUpload"
            )
        except Unanswered as error:
            self.uploads_unanswered[key] += not isinstance(error, NotSent)
            raise
        expect(reply, 200, "CreateMultipartUpload")
        self.upload = Upload(reply.xml("UploadId"), key, tag, self._part_sizes())
        self.done["begin upload"] += 1

    async def _send_part(self, upload: Upload) -> None:
        """The next one; where all are there, a new draft of one. One without an answer is sent again as it was."""
        missing = [number for number in range(1, len(upload.sizes) + 1) if number not in upload.acknowledged]
        number = missing[0] if missing else self._chance.randint(1, len(upload.sizes))
        if not missing or number not in upload.parts:
            upload.drafts += 1
            upload.parts[number] = content(f"{upload.tag}/{number}/{upload.drafts}", upload.sizes[number - 1])
        body = upload.parts[number]
        upload.acknowledged.discard(number)
        reply = await self._wire.request("PUT", upload.key, f"partNumber={number}&uploadId={upload.id}", body)
        expect(reply, 200, f"part {number} of {upload.key!r}")
        upload.acknowledged.add(number)
        self.done["part"] += 1

    async def _complete(self, upload: Upload) -> None:
        """Also once more, where it had no answer: then it has happened once in all."""
        if upload.completing is None:
            upload.completing = self._ledger.begin(upload.key, "complete", upload.whole())
        named = "".join(
            f'<Part><PartNumber>{number}</PartNumber><ETag>"{hashlib.md5(body).hexdigest()}"</ETag></Part>'
            for number, body in sorted(upload.parts.items())
        )
        body = f"<CompleteMultipartUpload>{named}</CompleteMultipartUpload>".encode()
        try:
            await self._write(upload.completing, 200, "POST", upload.key, f"uploadId={upload.id}", body)
        except NotSent:
            if not upload.completing.unanswered:
                upload.completing = None
            raise
        self.upload = None

    async def _abort(self, upload: Upload) -> None:
        again, upload.aborting = upload.aborting, True
        reply = await self._wire.request("DELETE", upload.key, f"uploadId={upload.id}")
        if not (again and reply.status == 404):
            expect(reply, 204, f"abort of {upload.key!r}")
        self.upload = None
        self.done["abort"] += 1

    def resolve_upload(self, listed: Mapping[str, str]) -> None:
        """Nobody writes any more, and these are under way: so it is known whether an unanswered end has happened."""
        upload = self.upload
        if upload is None or upload.open:
            return
        stands = upload.id in listed
        if upload.completing is not None:
            if stands:
                self._ledger.refuse(upload.completing, "has not happened: its upload is still there")
            else:
                self._ledger.land(upload.completing)
        upload.completing = None
        self.upload = upload if stands else None

    # ---- how ---------------------------------------------------------------------------------------------------------

    async def _write(
        self, attempt: Attempt, status: int, method: str, key: str, query: str = "", body: bytes = b"", **headers: str
    ) -> None:
        try:
            reply = await self._wire.request(method, key, query, body, **headers)
        except Unanswered as error:
            self._leave(attempt, error)
            raise
        if attempt.if_absent and reply.status == 412:
            self._ledger.refuse_as_present(attempt)
            return
        expect(reply, status, f"{attempt.verb} of {key!r}")
        self._check_etag(attempt, method, reply)
        self._acknowledge(attempt)

    def _leave(self, attempt: Attempt, error: Unanswered) -> None:
        """Nobody answered it, now or (a completion that is repeated) before."""
        if isinstance(error, NotSent) and not attempt.unanswered:
            self._ledger.refuse(attempt, "not sent")
        else:
            self._ledger.leave_open(attempt, str(error))

    def _check_etag(self, attempt: Attempt, method: str, reply: Reply) -> None:
        if attempt.value is None:
            return
        told = reply.headers.get("etag", "") or reply.xml("ETag")
        if told.strip('"') != attempt.value.etag:
            raise Broken(f"{attempt.verb} of {attempt.key!r}: expected ETag {attempt.value.etag}, told {told}")

    def _acknowledge(self, attempt: Attempt) -> None:
        self._ledger.acknowledge(attempt)
        self.done[attempt.verb.split()[0]] += 1

    async def _read(self, key: str) -> None:
        began = self._ledger.now()
        self._ledger.check_read(key, await self._wire.get(key), began)

    def _size(self) -> int:
        """Mostly what is packed, sometimes several frames, seldom a block of its own, and rarely several."""
        chance = self._chance
        least, most = chance.choices(
            ((0, 16 * KIB), (64 * KIB, 400 * KIB), (MIB, 3 * MIB), (8 * MIB, 17 * MIB)), (84, 13, 2.4, 0.6)
        )[0]
        return chance.randint(least, most)

    def _part_sizes(self) -> tuple[int, ...]:
        last = self._chance.randint(1, 300 * KIB)
        first = self._chance.choices(((), (PART_BYTES_MIN,), (PART_BYTES_MIN, PART_BYTES_MIN + 1)), (75, 17, 8))[0]
        return (*first, last)


def marks(tag: str) -> dict[str, str]:
    """The headers that go with a tag."""
    return {"x_amz_meta_tag": tag, "content_type": f"test/{tag}"}
