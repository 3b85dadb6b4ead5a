"""A gateway whose listings come from memory: the ceiling of the listings' rows.

Everything is the gateway's own, processes, HTTP, signatures, the check of who may list, the formatting, metrics and the
log; only that the engine answers a page that it holds, one and the same for a bucket whatever is asked, where a
gateway fetches it. So what a row loses to its ceiling is what fetching costs.

As a program: `python -m tests.bench.remembered serve …` is `entrepot serve` with such workers; `PAGES` names a file of
pickled pages by bucket.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

from gateway.cli import serve, worker
from gateway.cli.main import main
from gateway.engine.listings import ListingOperations
from gateway.engine.types import Caller, Page
from gateway.site.processes.child import run_child

PAGES = "ENTREPOT_BENCH_PAGES"
COMMAND = [sys.executable, "-m", "tests.bench.remembered"]


def remember(pages: dict[str, Page]) -> None:
    """From now on this process lists these pages, to those who may list the bucket."""

    async def recall(self: Any, caller: Caller, bucket: str, *asked: object) -> Page:
        self._bucket(caller, bucket)
        return pages[bucket]

    ListingOperations.list = recall  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve.WORKER_MODULE = __spec__.name
        main()
    else:
        remember(pickle.loads(Path(os.environ[PAGES]).read_bytes()))
        run_child(worker.WorkerRole())
