"""A process that puts values into a local backend until it is killed, and tells of each put that returned.

    python -m tests.backends.putter DIRECTORY SESSION

One line on standard output for each acknowledged key, `?` before it when its deletion begins, and `-` once that is
acknowledged. Size and bytes
of a value follow from its key, so whoever reads them can tell a whole value from a torn one.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from backends import base
from backends.local.backend import Local
from backends.local.wal import LOG_BYTES_MIN

TASKS = 8


def value_of(key: str) -> bytes:
    """The bytes that belong under *key*."""
    source = random.Random(key)
    size = source.choice([0, 100, 4_096, 4_096, 4_096, 30_000, 200_000, 400_000])
    return source.randbytes(size)


async def main(directory: str, session: int) -> None:
    local = await Local.open(directory, wal_bytes=LOG_BYTES_MIN)
    await local.warm()

    async def put_on(task: int) -> None:
        number = 0
        while True:
            number += 1
            key = f"{session:016x}/{task:04x}{number:08x}"
            value = value_of(key)
            await local.put(key, [value], base.crc32c_of([value]))
            os.write(1, f"{key}\n".encode())
            if number % 5 == 0:
                os.write(1, f"?{key}\n".encode())
                await local.delete(key)
                os.write(1, f"-{key}\n".encode())

    await asyncio.gather(*(put_on(task) for task in range(TASKS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
