"""The failpoints: their table and the code name the same ones, and what arms them is read with care."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from backends import crash_points
from gateway import failpoints
from gateway.failpoints import POINTS, parse
from tests.endpoint import ROOT

REACHED = re.compile(r"\b(failpoints|crash_points)\.reach\(([^)]*)\)")


def reached() -> dict[str, list[str]]:
    """point -> the rooms whose code reaches it."""
    found: dict[str, list[str]] = {}
    for room in ("backends", "gateway", "s3api"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for module, argument in REACHED.findall(path.read_text()):
                assert re.fullmatch(r'"[a-z-]+"', argument), f"{path}: {argument}: names stand in the code as they are"
                assert (module == "crash_points") == (room == "backends"), path
                found.setdefault(argument.strip('"'), []).append(room)
    return found


def test_every_point_of_the_table_stands_in_the_code_and_no_other_does() -> None:
    assert set(reached()) == set(POINTS)


def test_nothing_is_armed_and_nothing_is_asked_without_the_variable() -> None:
    assert failpoints.VARIABLE not in os.environ
    assert failpoints.reach is failpoints._nothing
    assert crash_points._watcher is crash_points._ignore


def test_what_arms_points_is_read() -> None:
    assert parse("") == {}
    assert parse("pack-stored=kill; batch-durable=sleep@3;") == {
        "pack-stored": ("kill", 1),
        "batch-durable": ("sleep", 3),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("pack-stoned=kill", "there is no failpoint 'pack-stoned'"),
        ("pack-stored", "the action is kill, raise, sleep or hang"),
        ("pack-stored=explode", "the action is kill, raise, sleep or hang"),
        ("pack-stored=kill@0", "a number from 1 on"),
        ("pack-stored=kill@x", "a number from 1 on"),
    ],
)
def test_what_arms_nothing_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse(text)


def run(armed: str, code: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {failpoints.VARIABLE: armed, "PYTHONPATH": str(ROOT)} | dict(more or {})
    code = f"from gateway.failpoints import reach\n{code}\nprint('lived')"
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_mistake_in_the_variable_ends_the_process_with_a_sentence() -> None:
    done = run("nonsense=kill", "")
    assert done.returncode == 1
    assert done.stderr.startswith("ENTREPOT_FAILPOINTS: there is no failpoint 'nonsense'; there are pack-sealed, ")
    assert len(done.stderr.splitlines()) == 1


def test_a_process_is_killed_at_the_time_that_was_asked_for() -> None:
    assert run("pack-stored=kill@3", "reach('pack-stored'); reach('pack-stored'); reach('pack-sealed')").returncode == 0
    done = run("pack-stored=kill@3", "[reach('pack-stored') for _ in range(3)]")
    assert (done.returncode, done.stdout) == (-9, "")
    assert done.stderr.startswith("failpoint pack-stored: kill, process ")


def test_a_step_of_a_backend_is_a_point_as_well() -> None:
    assert (
        run("log-durable=kill", "from backends import crash_points; crash_points.reach('log-durable')").returncode == -9
    )


def test_nothing_counts_before_the_file_is_there(tmp_path: Path) -> None:
    armed = {failpoints.FROM_VARIABLE: str(tmp_path / "now")}
    assert run("pack-stored=kill", "reach('pack-stored')", armed).stdout == "lived\n"
    (tmp_path / "now").touch()
    assert run("pack-stored=kill", "reach('pack-stored')", armed).returncode == -9


def test_a_point_may_raise_once() -> None:
    done = run(
        "pack-stored=raise",
        "try:\n    reach('pack-stored')\nexcept OSError as error:\n    print(error)\nreach('pack-stored')",
    )
    assert done.stdout == "[Errno 5] failpoint pack-stored\nlived\n"
