"""A short and eventful life of a site, run under strace by `test_power_cut`: `init`, load, kill -9, load, a stop.

Before a request goes out, and after it was answered, a line goes into the file `stamps`: a system call like the
others, so the recording has it in its place among them.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tests.endpoint import run_entrepot, started
from tests.flows.dying import kill_all, once, quick, set_quick
from tests.flows.reopened import ABSENT, digest
from tests.flows.tracing import STAMPS

BUCKET = "bucket"
LANES = 6
KEYS = 5
OPERATIONS = 22
KIB = 1 << 10
SIZES = [0, 100, 3 * KIB, 20 * KIB, 20 * KIB, 150 * KIB, 400 * KIB, 1_200 * KIB]
PAUSE_SECONDS = 1.5
"""Long enough for an idle checkpoint, for logs to turn over, and for the keeper."""


class Stamps:
    """What was begun and what was acknowledged, in the order of the calls."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._numbers = itertools.count()

    def say(self, **what: Any) -> None:
        os.write(self._file, json.dumps(what).encode() + b"\n")

    def doing(self, makes: dict[str, str], do: Callable[[], Any], **more: Any) -> Any:
        """Do what gives each key of *makes* this digest. None, and nothing acknowledged, where it failed."""
        number = next(self._numbers)
        self.say(begin=number, makes=makes, **more)
        try:
            answer = do()
        except (BotoCoreError, ClientError):
            return None
        self.say(ack=number)
        return answer


class Lane:
    """One client with keys of its own, one request at a time."""

    def __init__(self, number: int, s3: Any, stamps: Stamps, seed: str) -> None:
        self._number, self._s3, self._stamps = number, s3, stamps
        self._chance = random.Random(f"{seed} {number}")
        self._has: dict[str, bytes] = {}

    def run(self, count: int) -> None:
        for at in range(count):
            doing = [self.put, self.put, self.put, self.put, self.copy, self.delete, self.delete_several]
            (self.multipart if at in (3, 15) else self._chance.choice(doing))()

    def _key(self) -> str:
        return f"{self._number}/{self._chance.randrange(KEYS)}"

    def _value(self) -> bytes:
        return self._chance.randbytes(self._chance.choice(SIZES))

    def put(self) -> None:
        key, value = self._key(), self._value()
        self._stamps.doing({key: digest(value)}, lambda: self._s3.put_object(Bucket=BUCKET, Key=key, Body=value))
        self._has[key] = value

    def copy(self) -> None:
        if not self._has:
            return
        source, key = self._chance.choice(sorted(self._has)), self._key()
        there = {"Bucket": BUCKET, "Key": source}
        made = {key: digest(self._has[source])}
        if self._stamps.doing(made, lambda: self._s3.copy_object(Bucket=BUCKET, Key=key, CopySource=there)):
            self._has[key] = self._has[source]

    def delete(self) -> None:
        key = self._key()
        self._stamps.doing({key: ABSENT}, lambda: self._s3.delete_object(Bucket=BUCKET, Key=key))
        self._has.pop(key, None)

    def delete_several(self) -> None:
        keys = [f"{self._number}/{n}" for n in range(KEYS - 2)]
        which = {"Objects": [{"Key": key} for key in keys]}
        made = dict.fromkeys(keys, ABSENT)
        self._stamps.doing(made, lambda: self._s3.delete_objects(Bucket=BUCKET, Delete=which))
        for key in keys:
            self._has.pop(key, None)

    def multipart(self) -> None:
        key = f"{self._number}/whole"
        large = self._number == 0
        bodies = [self._chance.randbytes((5 << 20) if large else 300 * KIB)] + ([b"the end"] if large else [])
        begun = self._stamps.doing({}, lambda: self._s3.create_multipart_upload(Bucket=BUCKET, Key=key))
        if begun is None:
            return
        upload = begun["UploadId"]
        parts = []
        for number, body in enumerate(bodies, 1):
            made = self._stamps.doing({}, lambda: self._part(key, upload, number, body))  # noqa: B023
            if made is None:
                return
            self._stamps.say(part=number, key=key, upload=upload, etag=made["ETag"].strip('"'))
            parts.append({"ETag": made["ETag"], "PartNumber": number})
        whole = b"".join(bodies)
        self._stamps.doing(
            {key: digest(whole)},
            lambda: self._s3.complete_multipart_upload(
                Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
            ),
            ends=upload,
        )

    def _part(self, key: str, upload: str, number: int, body: bytes) -> Any:
        return self._s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number, Body=body)


def look_after(folder: Path, stamps: Stamps) -> None:
    """What an operator does meanwhile."""
    run_entrepot("keys", "rotate", "--site", str(folder))
    run_entrepot("user", "add", "alice", "--site", str(folder))
    stamps.say(user="alice")
    run_entrepot("backup", str(folder), str(folder.with_name("backup")))
    stamps.say(backup="backup")


def live(folder: Path, stamps: Stamps, environment: dict[str, str], *, life: int, killed: bool) -> None:
    with started(folder, environment=environment) as (endpoint, process):
        s3 = once(endpoint)
        if life == 0:
            s3.create_bucket(Bucket=BUCKET)
            stamps.say(bucket=BUCKET)
        lanes = [Lane(number, s3, stamps, f"life {life}") for number in range(LANES)]
        ending = threading.Timer(1.0, kill_all, (folder, process)) if killed else None
        with ThreadPoolExecutor(LANES) as pool:
            list(pool.map(lambda lane: lane.run(OPERATIONS // 2), lanes))
            if life == 1:
                pool.submit(look_after, folder, stamps)
            time.sleep(PAUSE_SECONDS)
            if ending is not None:
                ending.start()
            list(pool.map(lambda lane: lane.run(OPERATIONS // 2), lanes))
        if ending is not None:
            ending.join()


def main() -> None:
    root = Path(sys.argv[1])
    stamps = Stamps(root / STAMPS)
    folder = root / "site"
    environment = quick(root.with_name("quick"), turn_seconds=1.0, log_bytes=700 * KIB, wal_bytes=256 * KIB)
    run_entrepot("init", str(folder))
    set_quick(folder, workers=2)
    stamps.say(site=True)
    live(folder, stamps, environment, life=0, killed=True)
    live(folder, stamps, environment, life=1, killed=False)


if __name__ == "__main__":
    main()
