"""What is measured of each server: the name, the unit, the ratio to MinIO that is aimed at, and how.

All requests are presigned before the clock starts and sent by wrk, except DeleteObjects, whose bodies boto3 would take
longer to make than any server takes to answer. A run whose requests fail raises `RuntimeError`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.load import drive, sound
from tests.bench.objects import MIB, SMALL, delete_many, delete_singly, fill, fresh, put_keys
from tests.bench.presigned import Presigner
from tests.bench.server import Target

BUCKET = "peers"
LISTED, LISTED_BUCKET = 20_000, "peers-listed"
FOLDERS, FOLDERS_BUCKET = 2_000, "peers-folders"
PAGE = 1_000
DELETE_PUT_SECONDS = 4.0


@dataclass(frozen=True)
class Size:
    """How long each figure is measured, and over how many keys."""

    seconds: float
    keys: int


@dataclass(frozen=True)
class Figure:
    """`prepare` runs once for each server; `measure` runs once for each server in each round."""

    name: str
    unit: str
    aim: float | None
    """The least ratio to MinIO; 0.0 where the figure must only not get worse."""
    prepare: Callable[[Target, Size], None]
    measure: Callable[[Target, Size], float]


def figures() -> list[Figure]:
    """All figures, in the order in which they are measured and shown."""
    return [
        _put("PUT 4 KiB, 1 connection", SMALL, 1, 1.2),
        _put("PUT 4 KiB, 16 connections", SMALL, 16, 2.5),
        _put("PUT 4 KiB, 64 connections", SMALL, 64, 4.0),
        _put("PUT 1 MiB, 16 connections", MIB, 16, 1.6),
        _get("GET 4 KiB, 1 connection", "GET", SMALL, 1, 1.8),
        _get("GET 4 KiB, 16 connections", "GET", SMALL, 16, 2.5),
        _get("HEAD, 16 connections", "HEAD", 0, 16, 2.5),
        _get("GET 1 MiB, 16 connections", "GET", MIB, 16, 1.3),
        _get("GET 64 MiB, 1 connection", "GET", 64 * MIB, 1, 1.3),
        _get("GET 64 MiB, 4 connections", "GET", 64 * MIB, 4, 1.3),
        Figure(f"LIST, {PAGE:,} keys a page", "pages/s", 0.0, _fill_listed, _list),
        Figure(f"LIST with delimiter, {FOLDERS:,} prefixes", "pages/s", 0.0, _fill_folders, _list_folders),
        Figure("DELETE, 64 connections", "op/s", 0.0, _nothing, _delete),
        Figure("DeleteObjects, 1,000 keys each", "keys/s", 0.0, _nothing, _delete_many),
    ]


def make_buckets(server: Target) -> None:
    """Make the buckets that the figures use."""
    client = server.client()
    for bucket in (BUCKET, LISTED_BUCKET, FOLDERS_BUCKET):
        client.create_bucket(Bucket=bucket)


def _nothing(server: Target, size: Size) -> None:
    """Nothing is stored before the figure is measured."""


def _put(name: str, length: int, connections: int, aim: float) -> Figure:
    body = os.urandom(length)
    most = 1_500 if length > SMALL else 15_000
    unit = "MB/s" if length > SMALL else "op/s"

    def measure(server: Target, size: Size) -> float:
        paths = fresh(Presigner(server, BUCKET), "PUT", int(most * size.seconds))
        load = drive(server.address, paths, method="PUT", body=body, connections=connections, seconds=size.seconds)
        return sound(load) * (length / 1e6 if length > SMALL else 1)

    return Figure(name, unit, aim, _nothing, measure)


def _get(name: str, method: str, length: int, connections: int, aim: float) -> Figure:
    def keys(size: Size) -> list[str]:
        count = {SMALL: size.keys, 0: size.keys, MIB: 256}.get(length, 8)
        return [f"read/{length}/{connections}/{number:06d}" for number in range(count)]

    def prepare(server: Target, size: Size) -> None:
        fill(server, Presigner(server, BUCKET), keys(size), length)

    def measure(server: Target, size: Size) -> float:
        sign = Presigner(server, BUCKET)
        paths = [sign(method, key) for key in keys(size)]
        random.shuffle(paths)
        load = drive(server.address, paths, method=method, connections=connections, seconds=size.seconds)
        rate = sound(load)
        return load.megabytes if length > SMALL else rate

    return Figure(name, "MB/s" if length > SMALL else "op/s", aim, prepare, measure)


def _fill_listed(server: Target, size: Size) -> None:
    fill(server, Presigner(server, LISTED_BUCKET), [f"key/{number:08d}" for number in range(LISTED)], 0)


def _list(server: Target, size: Size) -> float:
    sign = Presigner(server, LISTED_BUCKET)
    query = {"list-type": "2", "max-keys": str(PAGE)}
    afters = random.choices(range(LISTED - PAGE), k=100)
    paths = [sign("GET", "", {**query, "start-after": f"key/{after:08d}"}) for after in afters]
    return sound(drive(server.address, paths, seconds=size.seconds))


def _fill_folders(server: Target, size: Size) -> None:
    names = [f"folder-{number:05d}/file" for number in range(FOLDERS)]
    fill(server, Presigner(server, FOLDERS_BUCKET), names, 0)


def _list_folders(server: Target, size: Size) -> float:
    sign = Presigner(server, FOLDERS_BUCKET)
    query = {"list-type": "2", "max-keys": str(PAGE), "delimiter": "/"}
    afters = random.choices(range(FOLDERS - PAGE), k=100)
    paths = [sign("GET", "", {**query, "start-after": f"folder-{after:05d}/"}) for after in afters]
    return sound(drive(server.address, paths, seconds=size.seconds))


def _delete(server: Target, size: Size) -> float:
    sign = Presigner(server, BUCKET)
    _, keys = put_keys(server, sign, DELETE_PUT_SECONDS)
    rate, _ = delete_singly(server, sign, keys)
    return rate


def _delete_many(server: Target, size: Size) -> float:
    sign = Presigner(server, BUCKET)
    _, keys = put_keys(server, sign, DELETE_PUT_SECONDS)
    return delete_many(server, sign, keys)
