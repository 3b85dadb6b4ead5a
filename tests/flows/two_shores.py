"""The two places of the journey, seen from behind the gateway's back: a folder here, a bucket there.

What lies there is sealed and never changes, so a damaged copy has been mended when its old bytes are there again.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from gateway.blocks.types import block_id_of
from gateway.crypto.sealing import HEADER_BYTES
from gateway.journal.paths import JournalPaths
from tests.files import block_files
from tests.servers.running import S3Server

NAME, PREFIX = "shore", "entrepot/"
BACKEND = """
[clusters.far]

[[lines]]
clusters = ["home", "far"]
latency_seconds = 0.01
bandwidth = "1 Gbit/s"

[backends.cloud]
type = "s3"
cluster = "far"
endpoint = "{url}"
region = "us-east-1"
bucket = "{bucket}"
prefix = "{prefix}"
create_bucket = true
access_key = "{access_key}"
secret_key_file = "cloud.secret"
"""


class Here:
    """The local backend's folder, which may be moved away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keys(self) -> set[str]:
        """Of all blocks that lie there."""
        return {path.relative_to(self.folder).as_posix() for path in block_files(self.folder)}

    def make_cold(self) -> None:
        """Have the kernel forget what it holds of the files, so that nothing is read from memory."""
        for key in self.keys():
            try:
                fd = os.open(self.folder / key, os.O_RDONLY)
            except FileNotFoundError:
                continue
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


class There:
    """The bucket, asked as its owner."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self._s3: Any = boto3.client(
            "s3",
            endpoint_url=server.url,
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            region_name="us-east-1",
            config=Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def config(self) -> str:
        """What names it in the site's config."""
        return BACKEND.format(url=self.server.url, bucket=NAME, prefix=PREFIX, access_key=self.server.access_key)

    def keys(self) -> set[str]:
        """Of all blocks that lie there."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=NAME, Prefix=PREFIX)
        keys = {each["Key"].removeprefix(PREFIX) for page in pages for each in page.get("Contents", ())}
        return {key for key in keys if block_id_of(key) is not None}

    def get(self, key: str) -> bytes | None:
        """A copy, sealed; None where there is none."""
        try:
            return bytes(self._s3.get_object(Bucket=NAME, Key=PREFIX + key)["Body"].read())
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return None
            raise

    def damage(self, keys: Collection[str], chance: random.Random) -> dict[str, bytes]:
        """Each in a way of its own: a flipped bit, an end that is missing, another block's bytes, or nothing. Answers
        what lay there."""
        before = {key: self.get(key) for key in keys}
        whole = {key: value for key, value in before.items() if value}
        for nth, (key, value) in enumerate(whole.items()):
            match nth % 4:
                case 0:
                    at = chance.randrange(HEADER_BYTES, len(value))
                    self._put(key, value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :])
                case 1:
                    self._put(key, value[: chance.randrange(len(value))])
                case 2:
                    self._put(key, next(other for each, other in whole.items() if each != key))
                case 3:
                    self._s3.delete_object(Bucket=NAME, Key=PREFIX + key)
        return whole

    def _put(self, key: str, value: bytes) -> None:
        self._s3.put_object(Bucket=NAME, Key=PREFIX + key, Body=value)


def bad(there: There, before: dict[str, bytes], site: Path) -> list[str]:
    """Those copies that are not what they were, of blocks that live."""
    alive = {*living(site)}
    return [key for key, value in before.items() if block_id_of(key) in alive and there.get(key) != value]


def living(site: Path) -> Iterator[bytes]:
    """The ids of all blocks that live."""
    database = JournalPaths(site / "journal").database
    tables = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        yield from (row[0] for row in tables.execute("SELECT id FROM block WHERE died = 0"))
    finally:
        tables.close()
