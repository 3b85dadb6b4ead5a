"""One S3 client on one connection, as cheap as it can be, which says plainly when it got no answer.

A request is never sent twice: whether an unanswered one happened is what the tests of kills are about.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote
from xml.etree import ElementTree

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from gateway.identity.canonical import UNSIGNED_PAYLOAD
from gateway.identity.signing import sign_headers
from tests.endpoint import ACCESS_KEY, SECRET_KEY
from tests.flows.ledger import Broken, Value
from tests.s3api.client import Reply, encode, quoted, read_reply

HUNG_SECONDS = 240.0
"""Without an answer for so long, something waits for ever."""
RECONNECT = 0.05
"""How often a client takes a new connection, which another worker may get."""
PAGE = 250


class Unanswered(Exception):
    """No answer, or 503: it may have happened or not."""


class NotSent(Unanswered):
    """Nobody took the connection: it has not happened."""


@dataclass
class Where:
    """Where the site listens at the moment."""

    host: str = ""
    port: int = 0


class Wire:
    """Sends requests on *bucket*, one after the other."""

    def __init__(self, where: Where, bucket: str, seed: str) -> None:
        self._where = where
        self._bucket = bucket
        self._chance = random.Random(seed)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, key: str = "", query: str = "", body: bytes = b"", **headers: str) -> Reply:
        """The answer, whatever it is but 503. *headers*: `content_type` is `content-type`. Raises `Unanswered`,
        `NotSent`."""
        try:
            async with asyncio.timeout(HUNG_SECONDS):
                reply = await self._exchange(method, key, query, body, headers)
        except TimeoutError:
            self.close()
            raise Broken(f"{method} {key!r} {query} has no answer after {HUNG_SECONDS:g} s") from None
        except (OSError, EOFError, asyncio.IncompleteReadError) as error:
            self.close()
            raise Unanswered(f"{type(error).__name__}: {error}") from error
        if reply.status == 503:
            self.close()  # the next may find somebody better
            raise Unanswered(f"503 {reply.code}")
        return reply

    async def _exchange(self, method: str, key: str, query: str, body: bytes, headers: dict[str, str]) -> Reply:
        if self._chance.random() < RECONNECT:
            self.close()
        if self._streams is None:
            try:
                self._streams = await asyncio.open_connection(self._where.host, self._where.port, limit=1 << 20)
            except OSError as error:
                raise NotSent(str(error)) from error
        reader, writer = self._streams
        raw_path = f"/{self._bucket}/{quoted(key)}" if key else f"/{self._bucket}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["host"] = f"{self._where.host}:{self._where.port}"
        if method in {"PUT", "POST"}:
            named["content-length"] = str(len(body))
        signed = sign_headers(
            method, raw_path=raw_path, raw_query=query, headers=named,
            payload=UNSIGNED_PAYLOAD, access_key=ACCESS_KEY, secret_key=SECRET_KEY, region="us-east-1",
            now=datetime.now(UTC),
        )  # fmt: skip
        writer.write(encode(method, f"{raw_path}?{query}" if query else raw_path, signed))
        writer.write(body)
        await writer.drain()
        reply = await read_reply(reader, method)
        if reply.headers.get("connection", "").lower() == "close":
            self.close()
        return reply

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    # ---- reading, as values ----------------------------------------------------------------------------------------

    async def get(self, key: str) -> Value | None:
        """The object, read to its end; None where there is none."""
        reply = await self.request("GET", key)
        if reply.status == 404 and reply.code == "NoSuchKey":
            return None
        expect(reply, 200, f"GET of {key!r}")
        return Value(tag_of(reply), len(reply.body), hashlib.md5(reply.body).hexdigest(), etag_of(reply))

    async def head(self, key: str) -> tuple[str, int, str] | None:
        """Its tag, size and ETag."""
        reply = await self.request("HEAD", key)
        if reply.status == 404:
            return None
        expect(reply, 200, f"HEAD of {key!r}")
        return tag_of(reply), int(reply.headers["content-length"]), etag_of(reply)

    async def listing(self) -> dict[str, tuple[int, str]]:
        """Size and ETag of every object of the bucket, by pages."""
        found: dict[str, tuple[int, str]] = {}
        token = ""
        while True:
            query = f"list-type=2&max-keys={PAGE}" + (f"&continuation-token={quote(token, safe='')}" if token else "")
            reply = expect(await self.request("GET", query=query), 200, "ListObjectsV2")
            for each in elements(reply, "Contents"):
                found[each["Key"]] = int(each["Size"]), each["ETag"].strip('"')
            token = reply.xml("NextContinuationToken")
            if not token:
                return found

    async def uploads(self) -> list[tuple[str, str]]:
        """Every upload that is under way: its id and its key."""
        reply = expect(await self.request("GET", query="uploads="), 200, "ListMultipartUploads")
        if reply.xml("IsTruncated") != "false":
            raise Broken("more uploads are under way than one page holds, and so many were never begun")
        return [(each["UploadId"], each["Key"]) for each in elements(reply, "Upload")]

    async def parts(self, key: str, upload: str) -> dict[int, tuple[int, str]]:
        """Size and ETag of each part of an upload."""
        reply = expect(await self.request("GET", key, f"uploadId={upload}"), 200, f"ListParts of {key!r}")
        return {
            int(each["PartNumber"]): (int(each["Size"]), each["ETag"].strip('"')) for each in elements(reply, "Part")
        }


def expect(reply: Reply, status: int, what: str) -> Reply:
    """*reply*, whose status has to be this. Raises `Broken`."""
    if reply.status != status:
        raise Broken(f"{what}: expected {status}, answered {reply.status} {reply.body[:400].decode(errors='replace')}")
    return reply


def elements(reply: Reply, name: str) -> Iterator[dict[str, str]]:
    """Every element of this name in an answer, each as the texts of its children."""
    for element in ElementTree.fromstring(reply.body).iter():
        if element.tag.rpartition("}")[2] == name:
            yield {child.tag.rpartition("}")[2]: child.text or "" for child in element}


def tag_of(reply: Reply) -> str:
    """What its metadata and its content type say alike; both where they differ."""
    meta = reply.headers.get("x-amz-meta-tag", "-")
    kind = reply.headers.get("content-type", "-").removeprefix("test/")
    return meta if meta == kind else f"{meta} with the content type of {kind}"


def etag_of(reply: Reply) -> str:
    return reply.headers.get("etag", "").strip('"')


def content(tag: str, size: int) -> bytes:
    """The bytes that go with a tag: no two have a stretch in common."""
    stream = Cipher(AES(hashlib.md5(tag.encode()).digest()), CTR(bytes(16))).encryptor()
    return stream.update(bytes(size))


def value_of(tag: str, body: bytes) -> Value:
    """What a plain PUT of *body* makes."""
    md5 = hashlib.md5(body).hexdigest()
    return Value(tag, len(body), md5, md5)


def content_md5(body: bytes) -> str:
    """The header's value."""
    return base64.b64encode(hashlib.md5(body).digest()).decode()
