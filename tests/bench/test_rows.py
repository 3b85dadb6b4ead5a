"""Every row about places can be measured: tiny sizes, no figure is looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import backlog, clouds, deciding, near, planning
from tests.bench.peers.servers import ENTREPOT, MINIO
from tests.bench.peers.table import Result, to_markdown
from tests.bench.plan import Plan
from tests.bench.table import Row
from tests.endpoint import ROOT
from tests.new_sites import TEMPLATES
from tests.servers.running import absent


def tiny(only: str) -> Plan:
    return Plan(only, 1, 1, 200, 200, planned=8_000, backlog_objects=300, backlog_gib=0.03)


def load_generator() -> None:
    if shutil.which("wrk") is None:
        absent("wrk", "run tests/install-clients")


def check(rows: list[Row], count: int) -> None:
    assert len(rows) == count
    assert all(row.measured and min(row.measured) > 0 for row in rows), rows


@pytest.mark.slow
def test_the_s3_backend_is_measured_beside_obstore() -> None:
    check(clouds.rows(tiny("s3 backend")), 4)


@pytest.mark.slow
def test_the_program_prints_a_table_of_the_rows_that_were_asked_for() -> None:
    load_generator()
    command = [sys.executable, "-m", "tests.bench", "--only", "HEAD", "--runs", "1", "--seconds", "1", "--keys", "50"]
    environment = {name: value for name, value in os.environ.items() if name != TEMPLATES}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "HEAD" in done.stdout


@pytest.mark.slow
def test_the_comparison_with_peers_prints_what_it_measured() -> None:
    load_generator()
    command = [sys.executable, "-m", "tests.bench.peers", "--only", "HEAD", "--peers", "", "--rounds", "1"]
    environment = {name: value for name, value in os.environ.items() if name != TEMPLATES}
    options = ["--seconds", "1", "--keys", "50"]
    done = subprocess.run([*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "HEAD" in done.stdout


def test_a_comparison_tells_the_median_and_the_range_of_the_ratios_within_a_round() -> None:
    result = Result("PUT", "op/s", 1.2, {ENTREPOT: [300, 200, 100], MINIO: [100, 100, 100]})
    assert result.ratios(MINIO) == [3, 2, 1]
    assert "| PUT | op/s | 200 | 100 | 2.00 (1.00–3.00) |" in to_markdown([result])


@pytest.mark.slow
def test_reconciles_decisions_are_measured() -> None:
    check(deciding.rows(tiny("decides")), 3)


@pytest.mark.slow
def test_what_a_second_place_costs_near_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_generator()
    monkeypatch.setattr(near, "WRITES", [row for row in near.WRITES if row[-1] != near.LONG])
    check(near.rows(tiny("4 KiB"), tmp_path), 2)


@pytest.mark.slow
def test_a_backlog_over_a_line_is_measured(tmp_path: Path) -> None:
    load_generator()
    check(backlog.rows(tiny("small"), tmp_path), 1)


@pytest.mark.slow
def test_a_change_of_policy_is_measured(tmp_path: Path) -> None:
    load_generator()
    (row,) = planning.rows(tiny(""), tmp_path)
    assert row.note  # so few blocks may be planned before the first pair was measured
