"""The table of `make bench-peers`: for the terminal, as JSON, and as Markdown for the README."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.peers.servers import ENTREPOT, MINIO

HEADINGS = ("what", "unit")


@dataclass
class Result:
    """One figure: `measured` has a value for each round, by the name of the server."""

    name: str
    unit: str
    aim: float | None
    measured: dict[str, list[float]]

    def ratios(self, peer: str) -> list[float]:
        """Entrepot's figure divided by the peer's, for each round."""
        return [ours / theirs for ours, theirs in zip(self.measured[ENTREPOT], self.measured[peer], strict=False)]

    def summary(self) -> str:
        return "; ".join(f"÷ {peer} {spread(self.ratios(peer))}" for peer in self.measured if peer != ENTREPOT)


def spread(values: list[float]) -> str:
    """The median and the range: `1.20 (1.10–1.31)`; empty for no values."""
    if not values:
        return ""
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def _cells(result: Result) -> list[str]:
    figures = [f"{statistics.median(values):,.0f}" if values else "" for values in result.measured.values()]
    ratios = [spread(result.ratios(peer)) for peer in result.measured if peer != ENTREPOT]
    aim = "" if result.aim is None else f"≥ {result.aim:g}" if result.aim else "no worse"
    return [result.name, result.unit, *figures, *ratios, aim]


def _headings(results: list[Result]) -> list[str]:
    names = list(results[0].measured)
    return [*HEADINGS, *names, *(f"÷ {name}" for name in names if name != ENTREPOT), f"aim (÷ {MINIO})"]


def show(results: list[Result]) -> None:
    """Print the table; nothing if nothing was measured."""
    if not results:
        return
    table = Table(title=f"medians; ratios: median and range of {len(results[0].measured[ENTREPOT])} rounds")
    for number, heading in enumerate(_headings(results)):
        table.add_column(heading, justify="right" if number >= len(HEADINGS) else "left")
    for result in results:
        table.add_row(*_cells(result))
    Console(width=170).print(table)


def to_markdown(results: list[Result]) -> str:
    """The table with the date and the machine, as the README shows it: without the column of aims."""
    headings = _headings(results)[:-1]
    rounds = len(results[0].measured[ENTREPOT])
    lines = [
        f"Measured on {datetime.now(UTC):%Y-%m-%d}, {machine()}. Medians of {rounds} rounds; ratios with their range.",
        "",
        "| " + " | ".join(headings) + " |",
        "|" + "---|" * len(HEADINGS) + "---:|" * (len(headings) - len(HEADINGS)),
        *("| " + " | ".join(_cells(result)[:-1]) + " |" for result in results),
    ]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """The processors, the memory and the kernel, without the name of the host."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = int(next(line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")))
    cores = os.cpu_count() or 1
    return f"{cores} cores ({models[0] if models else platform.machine()}), {memory >> 20} GiB, Linux {_kernel()}"


def _kernel() -> str:
    return ".".join(platform.release().split(".")[:2])


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def save(results: list[Result], path: str) -> None:
    """Write the figures of every round as JSON."""
    Path(path).write_text(json.dumps([asdict(result) for result in results], indent=1))
