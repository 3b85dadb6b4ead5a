"""`make bench-peers`: `python -m tests.bench.peers [--only WORD] [--rounds N] [--seconds S] …`.

In each round each server is measured once, in an order that rotates, so that a machine that gets slower does so under
all of them. The table shows medians over the rounds, and the median and the range of the ratios within a round.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.bench.ceilings import scratch_folder
from tests.bench.peers.figures import Figure, Size, figures, make_buckets
from tests.bench.peers.servers import MINIO, VERSITYGW, servers
from tests.bench.peers.table import Result, save, show, to_markdown
from tests.bench.server import Target
from tests.new_sites import TEMPLATES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--only", default="", help="measure only the figures whose name contains this word")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--keys", type=int, default=5_000, help="small objects that are read")
    parser.add_argument("--peers", default=f"{MINIO},{VERSITYGW}", help="compare with these (default: %(default)s)")
    parser.add_argument("--json", default="", help="also write the figures to this file")
    parser.add_argument("--markdown", default="", help="also write the table to this file, as the README shows it")
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers end with this process
    chosen = [each for each in figures() if wanted.only.lower() in each.name.lower()]
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="entrepot-templates-") as templates, scratch_folder() as folder:
        os.environ[TEMPLATES] = templates
        try:
            with servers(Path(folder), wanted.peers.split(",")) as running:
                measure(running, chosen, Size(wanted.seconds, wanted.keys), wanted.rounds, results)
        finally:  # a run that is ended early shows what it measured until then
            show(results)
    if wanted.json:
        save(results, wanted.json)
    if wanted.markdown:
        Path(wanted.markdown).write_text(to_markdown(results))


def measure(running: dict[str, Target], chosen: list[Figure], size: Size, rounds: int, results: list[Result]) -> None:
    """Append a result for each figure."""
    for server in running.values():
        make_buckets(server)
    for figure in chosen:
        result = Result(figure.name, figure.unit, figure.aim, {name: [] for name in running})
        results.append(result)
        for server in running.values():
            figure.prepare(server, size)
        names = list(running)
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                result.measured[name].append(figure.measure(running[name], size))
        print(f"{figure.name}: {result.summary()}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
