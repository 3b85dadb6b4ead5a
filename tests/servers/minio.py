"""MinIO: the one whose address the environment names, or a process of its own where the program is there.

Debian has none. `make minio` builds one from Go's registry, in some minutes; nothing else asks for that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.ports import free_port
from tests.servers.running import S3Server, absent, answers, process, wait_until

ADDRESS = "ENTREPOT_TEST_MINIO"
"""The variable: `http://key:secret@host:port`."""
BUILT = Path(__file__).parents[2] / ".make" / "bin" / "minio"
WHY_NOT = f"no MinIO: {ADDRESS} names none (http://key:secret@host:port), and `make minio` built none"


def named() -> S3Server | None:
    """The one that the environment names."""
    address = os.environ.get(ADDRESS)
    if not address:
        return None
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    keys = unquote(parts.username or ""), unquote(parts.password or "")
    return S3Server(f"{parts.scheme}://{host}", *keys, stays=True)


def is_there() -> bool:
    """Whether there is one for tests that leave nothing behind."""
    return named() is not None or can_start()


def can_start() -> bool:
    """Whether there is one for tests that want it for themselves."""
    return _program() is not None


@contextmanager
def minio(folder: Path) -> Iterator[S3Server]:
    """A MinIO of our own until the block ends, with its log and its data in *folder*."""
    program = _program()
    if program is None:
        absent("minio", "`make minio`, where there is Go")
    data = folder / "data"
    data.mkdir(parents=True)
    port, log = free_port(), folder / "minio.log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MINIO_"))}
    own = {"MINIO_ROOT_USER": "minioaccesskey", "MINIO_ROOT_PASSWORD": "miniosecretkey", "MINIO_BROWSER": "off"}
    command = [program, "server", str(data), "--address", f"127.0.0.1:{port}"]
    with process(command, log, {**kept, **own, "MINIO_UPDATE": "off"}) as running:
        wait_until(lambda: answers(port), "minio", log, running)
        yield S3Server(f"http://127.0.0.1:{port}", own["MINIO_ROOT_USER"], own["MINIO_ROOT_PASSWORD"])


def _program() -> str | None:
    return str(BUILT) if BUILT.exists() else shutil.which("minio")
