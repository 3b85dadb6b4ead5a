"""What the journey carries: objects that are written once, through boto3 and through fsspec, and read in both ways.

None is ever changed, so each read shows exactly what was written, or says that it cannot be had at the moment.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import fsspec
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from tests.endpoint import ACCESS_KEY, SECRET_KEY, Endpoint
from tests.flows.killing import PATIENCE_SECONDS, Served
from tests.flows.ledger import Broken
from tests.flows.wire import content
from tests.site.running import client

T = TypeVar("T")
BUCKET = "cargo"
KIB, MIB = 1 << 10, 1 << 20
IN_PARTS = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB, use_threads=False)
REFUSALS = (ClientError, BotoCoreError, HTTPError, OSError)
"""How a client hears that something cannot be done at the moment."""
AGAIN_SECONDS = 0.2


class Crate(NamedTuple):
    """An object: its bytes follow from its tag and its size."""

    tag: str
    size: int
    metadata: Mapping[str, str]

    @property
    def content(self) -> bytes:
        return content(self.tag, self.size)


class Cargo:
    """All of it, and the ways to it. Everything here blocks: for a thread."""

    def __init__(self, served: Served, seed: str) -> None:
        self.crates: dict[str, Crate] = {}
        """By key."""
        self._served = served
        self._chance = random.Random(f"{seed}/cargo")
        self._url = f"http://127.0.0.1:{served.port}"

    # ---- the ways --------------------------------------------------------------------------------------------------

    def s3(self, retries: int = 8) -> Any:
        endpoint = Endpoint(self._url, ACCESS_KEY, SECRET_KEY, "us-east-1", self._served.folder, self._served.log)
        return client(endpoint, retries=retries, max_pool=4)

    @contextmanager
    def over_http(self) -> Iterator[Any]:
        """fsspec by way of the gateway."""
        with _closed(endpoint=self._url, key=ACCESS_KEY, secret=SECRET_KEY) as files:
            yield files

    @contextmanager
    def in_process(self) -> Iterator[Any]:
        """fsspec that opens the site's own files."""
        with _closed(site=str(self._served.folder)) as files:
            yield files

    # ---- writing ---------------------------------------------------------------------------------------------------

    def load(self, under: str, *, large: bool) -> None:
        """Write some objects in each way; *large*: also ones of several blocks. Asked again where nobody answers."""
        sizes = [self._chance.randint(1, 60 * KIB) for _ in range(24)]
        self._by_boto3(under, sizes[:12], [20 * MIB + 4_321] if large else [], [17 * MIB + 1] if large else [])
        with self.over_http() as files:
            self._by_fsspec(files, f"{under}/over http", [*sizes[12:18], *([21 * MIB + 17] if large else [])])
        with self.in_process() as files:
            self._by_fsspec(files, f"{under}/in process", [*sizes[18:], *([9 * MIB] if large else [])])

    def _by_boto3(self, under: str, small: Sequence[int], large: Sequence[int], in_parts: Sequence[int]) -> None:
        s3 = self.s3()
        for size in (*small, *large):
            key, crate = self._new(f"{under}/boto3", size, {"ship": self._chance.choice(["Anna", "Berta"])})
            patiently(
                lambda key=key, crate=crate: s3.put_object(
                    Bucket=BUCKET, Key=key, Body=crate.content, Metadata=dict(crate.metadata)
                )
            )
            self.crates[key] = crate
        for size in in_parts:
            key, crate = self._new(f"{under}/parts", size, {"sent": "in parts"})
            more = {"Metadata": dict(crate.metadata)}
            patiently(
                lambda key=key, crate=crate, more=more: s3.upload_fileobj(
                    io.BytesIO(crate.content), BUCKET, key, ExtraArgs=more, Config=IN_PARTS
                )
            )
            self.crates[key] = crate

    def _by_fsspec(self, files: Any, under: str, sizes: Sequence[int]) -> None:
        for size in sizes:
            key, crate = self._new(under, size, {"kind": "file"} if size < MIB else {})
            patiently(lambda key=key, crate=crate: _write(files, f"{BUCKET}/{key}", crate))
            self.crates[key] = crate

    def _new(self, under: str, size: int, metadata: Mapping[str, str]) -> tuple[str, Crate]:
        key = f"{under}/{len(self.crates):03}"
        return key, Crate(f"crate {key}", size, metadata)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Read every object in one of the ways. Raises `Broken` where one is not what was written, or refused."""
        if refused := self.refusals():
            raise Broken(f"{len(refused)} of {len(self.crates)} objects cannot be read: {refused}")

    def refusals(self) -> dict[str, Exception]:
        """Read every object in one of the ways, once. Answers those that were refused, and how. Raises `Broken` where
        other bytes came than were written."""
        found: dict[str, Exception] = {}
        s3 = self.s3(retries=0)
        with self.over_http() as over_http, self.in_process() as in_process:
            ways = [lambda key: _get(s3, key), lambda key: _cat(over_http, key), lambda key: _cat(in_process, key)]
            for key, crate in self.crates.items():
                try:
                    seen, metadata = self._chance.choices(ways, (4, 2, 1))[0](key)
                except REFUSALS as error:
                    found[key] = error
                    continue
                if seen != crate.content:
                    raise Broken(f"{key!r} has other bytes than were written ({len(seen)} of {crate.size})")
                if metadata != crate.metadata:
                    raise Broken(f"{key!r} has the metadata {metadata}; written was {crate.metadata}")
        return found

    def check_in_every_way(self) -> None:
        """Every byte of every object, through boto3 and through fsspec, and the list of them. Raises `Broken`."""
        s3 = self.s3(retries=0)
        with self.over_http() as over_http, self.in_process() as in_process:
            for files in (over_http, in_process):
                listed = {path.removeprefix(f"{BUCKET}/") for path in files.find(BUCKET)}
                if listed != self.crates.keys():
                    raise Broken(f"listed otherwise than written: {sorted(listed ^ self.crates.keys())}")
            for key, crate in self.crates.items():
                seen = [_get(s3, key), _cat(over_http, key), _cat(in_process, key)]
                if any(each != (crate.content, crate.metadata) for each in seen):
                    raise Broken(f"{key!r} is not what was written: {[len(each[0]) for each in seen]}, {crate}")


def patiently(ask: Callable[[], T]) -> T:
    """What *ask* answers, asked again while that is refused. Only for what may be done twice."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except REFUSALS as error:
            if time.monotonic() > deadline:
                raise Broken(f"refused for {PATIENCE_SECONDS:g} s, the last time by {error!r}") from error
            time.sleep(AGAIN_SECONDS)


def _write(files: Any, path: str, crate: Crate) -> None:
    if crate.size < MIB:
        files.pipe_file(path, crate.content, metadata=dict(crate.metadata))
        return
    with files.open(path, "wb") as file:
        value = memoryview(crate.content)
        for at in range(0, len(value), 3 * MIB):
            file.write(value[at : at + 3 * MIB])


def _get(s3: Any, key: str) -> tuple[bytes, dict[str, str]]:
    answer = s3.get_object(Bucket=BUCKET, Key=key)
    return answer["Body"].read(), answer["Metadata"]


def _cat(files: Any, key: str) -> tuple[bytes, dict[str, str]]:
    path = f"{BUCKET}/{key}"
    return files.cat_file(path), files.metadata(path)


@contextmanager
def _closed(**options: Any) -> Iterator[Any]:
    files = fsspec.filesystem("entrepot", skip_instance_cache=True, **options)
    try:
        yield files
    finally:
        files.close()
