"""Objects in and out: each row beside the bare server, or the bare disk, that bounds it."""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import queue
import random
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench import ceilings
from tests.bench.load import drive, sound
from tests.bench.plan import Plan
from tests.bench.presigned import Presigner
from tests.bench.server import CORES, Gateway, Target, bare
from tests.bench.table import Row, interleave

SMALL = 4096
MIB = 1 << 20
DELETE_SECONDS = 1
MANY_CONNECTIONS = 4
"""Of DeleteObjects: enough that the gateway is never idle."""
BARE = f"aiohttp, {CORES} processes"


def rows(plan: Plan, running: Gateway) -> list[Row]:
    client = running.client()
    client.create_bucket(Bucket="bench")
    sign = Presigner(running, "bench")
    made = [
        *_puts(plan, running, sign),
        *_gets(plan, running, sign),
        *_large(plan, running, sign),
        *_deletes(plan, running, sign),
    ]
    made.append(_memory(running))
    return made


def fresh(sign: Presigner, method: str, count: int) -> list[str]:
    """So many presigned paths that no run used before, in random order."""
    tag = os.urandom(4).hex()
    paths = [sign(method, f"fresh/{tag}/{number:08d}") for number in range(count)]
    random.shuffle(paths)
    return paths


def _puts(plan: Plan, running: Gateway, sign: Presigner) -> list[Row]:
    body = os.urandom(SMALL)
    found = []
    for connections, aim in ((64, 0.15), (16, None), (1, 0.5)):
        name = f"PUT 4 KiB, durable, {connections} connections"
        if not plan.wants(name):
            continue
        rate = 12_000 if connections > 1 else 3_000

        def put(connections: int = connections, rate: int = rate) -> float:
            paths = fresh(sign, "PUT", int(rate * plan.seconds))
            done = drive(running.address, paths, method="PUT", body=body, connections=connections, seconds=plan.seconds)
            return sound(done)

        if connections == 1:
            with ceilings.scratch_folder() as folder:
                row = Row(name, "op/s", "append + fdatasync, then WAL commit", aim)
                interleave(row, put, lambda folder=folder: ceilings.append_then_commit(Path(folder)), plan.runs)
        else:
            with bare("drop") as address:
                row = Row(name, "op/s", f"{BARE}, read and dropped", aim)

                def drop(address: str = address, connections: int = connections) -> float:
                    return drive(
                        address, ["/x"], method="PUT", body=body, connections=connections, seconds=plan.seconds
                    ).rate

                interleave(row, put, drop, plan.runs)
        found.append(row)
    return found


def _gets(plan: Plan, running: Gateway, sign: Presigner) -> list[Row]:
    names = {"GET": "GET 4 KiB, 16 connections", "HEAD": "HEAD, 16 connections"}
    if not any(plan.wants(name) for name in names.values()):
        return []
    found = []
    # wrk waits for a body behind a HEAD that tells a length: its objects are empty, and its ceiling is a GET's.
    for method, kind, size in (("GET", "constant", SMALL), ("HEAD", "empty", 0)):
        if not plan.wants(names[method]):
            continue
        keys = [f"small/{method}/{os.urandom(6).hex()}" for _ in range(plan.keys)]
        fill(running, sign, keys, size)
        paths = [sign(method, key) for key in keys]
        random.shuffle(paths)
        with bare(kind) as address:
            row = Row(names[method], "op/s", f"{BARE}, a constant answer", 0.30)
            interleave(
                row,
                lambda method=method, paths=paths: sound(
                    drive(running.address, paths, method=method, seconds=plan.seconds)
                ),
                lambda address=address: drive(address, ["/x"], seconds=plan.seconds).rate,
                plan.runs,
            )
        found.append(row)
    return found


def fill(running: Target, sign: Presigner, keys: list[str], size: int, threads: int = 16) -> None:
    """PUT so many random bytes under each of *keys*."""

    def put(key: str) -> None:
        request = urllib.request.Request(running.address + sign("PUT", key), data=os.urandom(size), method="PUT")
        request.add_header("Content-Type", "application/octet-stream")
        with urllib.request.urlopen(request) as answer:
            answer.read()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(put, keys))


def _large(plan: Plan, running: Gateway, sign: Presigner) -> list[Row]:
    found = []
    for size, connections, count in ((MIB, 16, 256), (64 * MIB, 1, 8), (64 * MIB, 4, 8)):
        name = f"GET {size // MIB} MiB by {connections}"
        if not plan.wants(name):
            continue
        keys = [f"large/{size}/{number}" for number in range(count)]
        fill(running, sign, keys, size, threads=4)
        paths = [sign("GET", key) for key in keys]
        with bare("zeros") as address:
            row = Row(name, "MB/s", f"{BARE}, streaming zeros", 0.55)
            interleave(
                row,
                lambda paths=paths, connections=connections: (
                    drive(running.address, paths, connections=connections, seconds=plan.seconds).megabytes
                ),
                lambda address=address, size=size, connections=connections: (
                    drive(address, [f"/{size}"], connections=connections, seconds=plan.seconds).megabytes
                ),
                plan.runs,
            )
        found.append(row)
    return [*found, *_large_puts(plan, running, sign)]


def _large_puts(plan: Plan, running: Gateway, sign: Presigner) -> list[Row]:
    found = []
    name = "PUT 1 MiB by 16"
    if plan.wants(name):
        body = os.urandom(MIB)

        def put() -> float:
            paths = fresh(sign, "PUT", int(1_500 * plan.seconds))
            done = drive(running.address, paths, method="PUT", body=body, connections=16, seconds=plan.seconds)
            return sound(done) * MIB / 1e6

        found.append(_beside_disk(plan, Row(name, "MB/s", "", 0.6), put, MIB, 16))
    name = "multipart PUT 64 MiB by 4 threads"
    if plan.wants(name):
        found.append(
            _beside_disk(plan, Row(name, "MB/s", "", 0.6), lambda: _multipart(running, plan.seconds), 8 * MIB, 4)
        )
    return found


def _beside_disk(plan: Plan, row: Row, measure: object, size: int, threads: int) -> Row:
    """The ceiling is the slower of a bare durable write of such pieces and MD5 on two threads."""
    with ceilings.scratch_folder() as folder:

        def slower() -> float:
            disk = ceilings.durable_writes(Path(folder), size, threads)
            md5 = ceilings.md5_rate(size)
            row.ceiling_name = "bare durable writes" if disk < md5 else "MD5 on two threads"
            return min(disk, md5) / 1e6

        return interleave(row, measure, slower, plan.runs)  # type: ignore[arg-type]


def _multipart(running: Gateway, seconds: float, part: int = 8 * MIB, parts: int = 8) -> float:
    """MB/s of whole multipart uploads of 64 MiB, four at a time, each part with today's unsigned payload."""
    body = os.urandom(part)
    deadline = time.perf_counter() + seconds
    local = threading.local()

    def upload(worker: int) -> int:
        client = getattr(local, "client", None) or running.client(
            request_checksum_calculation="when_required", signature_version="s3v4"
        )
        local.client = client
        done = 0
        while time.perf_counter() < deadline:
            key = f"multipart/{worker}/{os.urandom(4).hex()}"
            upload_id = client.create_multipart_upload(Bucket="bench", Key=key)["UploadId"]
            told = []
            for number in range(1, parts + 1):
                address = client.generate_presigned_url(
                    "upload_part", {"Bucket": "bench", "Key": key, "UploadId": upload_id, "PartNumber": number}
                )
                request = urllib.request.Request(address, data=body, method="PUT")
                with urllib.request.urlopen(request) as answer:
                    told.append({"PartNumber": number, "ETag": answer.headers["ETag"]})
            client.complete_multipart_upload(
                Bucket="bench", Key=key, UploadId=upload_id, MultipartUpload={"Parts": told}
            )
            done += part * parts
        return done

    started = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(upload, range(4)))
    return total / (time.perf_counter() - started) / 1e6


def _deletes(plan: Plan, running: Gateway, sign: Presigner) -> list[Row]:
    """PUT fresh keys, DELETE some of them by as many connections, and the rest by DeleteObjects, in turn."""
    singly = Row("DELETE, 64 connections", "op/s", "PUT 4 KiB by as many, the same keys", 1.3)
    many = Row("DeleteObjects by 1,000", "keys/s", "DELETE by 64 connections, keys beside", 3.0)
    wanted = [row for row in (singly, many) if plan.wants(row.name)]
    for _ in range(plan.runs if wanted else 0):
        put_rate, keys = put_keys(running, sign, max(plan.seconds, 6 * DELETE_SECONDS))
        delete_rate, left = delete_singly(running, sign, keys)
        singly.ceiling.append(put_rate)
        singly.measured.append(delete_rate)
        many.ceiling.append(delete_rate)
        many.measured.append(delete_many(running, sign, left))
    return wanted


def put_keys(running: Target, sign: Presigner, seconds: float) -> tuple[float, list[str]]:
    """PUTs a second, and the keys that were certainly put, in random order: several times what DELETE takes."""
    tag = os.urandom(4).hex()
    keys = [f"gone/{tag}/{number:08d}" for number in range(int(12_000 * seconds))]
    puts = [sign("PUT", key) for key in keys]
    done = drive(running.address, puts, method="PUT", body=os.urandom(SMALL), connections=64, seconds=seconds)
    certain = keys[: max(1, int(done.rate * seconds) - 64)]
    random.shuffle(certain)
    return sound(done), certain


def delete_singly(running: Target, sign: Presigner, keys: list[str]) -> tuple[float, list[str]]:
    """DELETEs a second, and the keys that are left."""
    paths = [sign("DELETE", key) for key in keys]
    rate = sound(drive(running.address, paths, method="DELETE", connections=64, seconds=DELETE_SECONDS))
    left = keys[int(rate * DELETE_SECONDS * 1.1) + 64 :]
    if not left:
        raise RuntimeError(f"{len(keys)} keys do not last at {rate:.0f} DELETEs a second")
    return rate, left


def delete_many(running: Target, sign: Presigner, keys: list[str]) -> float:
    """Keys a second of DeleteObjects by 1,000, sent by a few connections whose requests were made before."""
    host = urlsplit(running.address).netloc
    bodies = queue.SimpleQueue[bytes]()
    for at in range(0, len(keys), 1000):
        told = "".join([f"<Object><Key>{key}</Key></Object>" for key in keys[at : at + 1000]])
        bodies.put(f"<Delete><Quiet>true</Quiet>{told}</Delete>".encode())
    path = sign("POST", "", {"delete": ""})

    def send() -> None:
        connection = http.client.HTTPConnection(host)
        while True:
            try:
                body = bodies.get_nowait()
            except queue.Empty:
                return
            md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
            connection.request("POST", path, body, {"Content-MD5": md5})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200 or b"<Error>" in text:
                raise RuntimeError(f"DeleteObjects was answered {answer.status}: {text[:500]!r}")

    started = time.perf_counter()
    with ThreadPoolExecutor(MANY_CONNECTIONS) as pool:
        for each in [pool.submit(send) for _ in range(MANY_CONNECTIONS)]:
            each.result()
    return len(keys) / (time.perf_counter() - started)


def _memory(running: Gateway) -> Row:
    """Resident memory of the largest process at the end."""
    sizes = []
    for pid in running.pids():
        told = Path(f"/proc/{pid}/status").read_text().splitlines()
        sizes += [int(line.split()[1]) / 1024 for line in told if line.startswith("VmHWM:")]
    return Row("largest process's peak memory", "MiB", "", None, measured=[max(sizes)])
