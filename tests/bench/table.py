"""The one table that `make bench` prints: a figure, its ceiling in the same run, their ratio, and what is aimed at."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass
class Row:
    """One line. `measured` and `ceiling` hold a figure a run, in `unit`; the ratio is the median of the pairs."""

    name: str
    unit: str
    ceiling_name: str
    aim: float | None
    measured: list[float] = field(default_factory=list)
    ceiling: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if not self.measured or not self.ceiling:
            return None
        return statistics.median(a / b for a, b in zip(self.measured, self.ceiling, strict=True))


def interleave(row: Row, measure: Callable[[], float], ceiling: Callable[[], float] | None, runs: int) -> Row:
    """Measure the two in turn, so that a drifting machine drifts under both."""
    for _ in range(runs):
        if ceiling is not None:
            row.ceiling.append(ceiling())
        row.measured.append(measure())
    return row


def show(rows: list[Row]) -> None:
    table = Table(title="entrepot, beside what the machine could do (medians)")
    for heading in ("what", "measured", "unit", "ceiling", "", "ratio", "aim", "note"):
        table.add_column(heading, justify="right" if heading in ("measured", "ceiling", "ratio", "aim") else "left")
    for row in rows:
        ratio = row.ratio
        table.add_row(
            row.name,
            _figure(row.measured),
            row.unit,
            _figure(row.ceiling),
            row.ceiling_name,
            "" if ratio is None else f"{ratio:.2f}",
            "" if row.aim is None else f"≥ {row.aim:g}",
            row.note,
        )
    Console(width=170).print(table)


def _figure(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f}" if values else ""


def save(rows: list[Row], path: str) -> None:
    """The same as JSON, for programs."""
    with open(path, "w", encoding="utf-8") as out:
        json.dump([asdict(row) | {"ratio": row.ratio} for row in rows], out, indent=1)
