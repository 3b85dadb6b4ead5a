"""A text gives a process other durations and clocks, and what means nothing is refused with a sentence."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import get_type_hints

import pytest

from gateway.errors import Misconfigured
from gateway.timing import VARIABLE, Clock, SystemClock, Timing, parse_timing, timing_from_environment
from gateway.timing.overrides import _announced
from tests.endpoint import ROOT

DAY = 86_400.0


def groups() -> dict[str, object]:
    return {each.name: getattr(Timing(), each.name) for each in dataclasses.fields(Timing) if each.name != "clock"}


def test_without_a_text_all_is_as_it_is_in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert parse_timing("").workers == timing_from_environment().workers == Timing().workers
    assert isinstance(timing_from_environment().clock, SystemClock)


def test_every_duration_is_a_pause_or_a_limit_in_seconds_with_a_meaning_and_a_default() -> None:
    source = "".join((ROOT / path).read_text() for path in ("gateway/timing/durations.py", "backends/timing.py"))
    for name, group in groups().items():
        for field, hint in get_type_hints(type(group), include_extras=True).items():
            assert hint.__metadata__ in {("pause",), ("limit",)}, f"{name}.{field}"
            assert field.endswith("_seconds")
            assert re.search(rf'    {field}: \w+ = [^\n]*\n    """[A-Z]', source), f"{name}.{field} has no meaning"


def test_every_duration_is_used() -> None:
    code = "\n".join(
        path.read_text()
        for room in ("gateway", "backends", "s3api")
        for path in (ROOT / room).rglob("*.py")
        if path.name not in {"durations.py", "timing.py"}
    )
    unused = {field.name for group in groups().values() for field in dataclasses.fields(group)}  # type: ignore[arg-type]
    assert {name for name in unused if not re.search(rf"\.{name}\b", code)} == set()


def test_a_scale_shortens_pauses_and_leaves_limits_and_what_is_named_alone() -> None:
    timing = parse_timing("workers.idle_seconds=3; scale=0.1; sweeper.upload_most_seconds=7")
    assert timing.workers.idle_seconds == 3.0
    assert timing.workers.poll_seconds == pytest.approx(0.025)
    assert timing.sweeper.upload_most_seconds == 7.0
    assert parse_timing("scale=0.1").sweeper.upload_most_seconds == Timing().sweeper.upload_most_seconds


def durations() -> list[tuple[str, str]]:
    """Each duration as `group.field`, and whether it is a pause or a limit."""
    return [
        (f"{name}.{field}", hint.__metadata__[0])
        for name, group in groups().items()
        for field, hint in get_type_hints(type(group), include_extras=True).items()
    ]


def value(timing: Timing, name: str) -> tuple[float, ...]:
    group, _, field = name.partition(".")
    found = getattr(getattr(timing, group), field)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize(("name", "kind"), durations())
def test_each_pause_is_scaled_each_limit_is_not_and_each_can_be_set_by_name(name: str, kind: str) -> None:
    factor = 0.5 if kind == "pause" else 1.0
    assert value(parse_timing("scale=0.5"), name) == tuple(each * factor for each in value(Timing(), name))
    assert value(parse_timing(f"scale=0.5; {name}=123"), name) == (123.0,)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("scale", "'scale' is not NAME=VALUE"),
        ("scale=", "'scale=' is not NAME=VALUE"),
        ("scale=fast", "scale=fast: a finite number, 0 or more, is needed"),
        ("scale=-1", "scale=-1: a finite number, 0 or more"),
        ("scale=nan", "scale=nan: a finite number"),
        ("scale=1;scale=2", "'scale' is given twice"),
        ("workers=1", "there is no .workers.; workers has poll_seconds"),
        ("workers.nap_seconds=1", "there is no 'workers.nap_seconds'; workers has poll_seconds, idle_seconds"),
        ("walkers.poll_seconds=1", "there is no 'walkers.poll_seconds'; there are scale, clock_file, wall_offset_seco"),
        ("clock.now=1", "there is no 'clock.now'"),
        ("workers.poll_seconds=-1", "workers.poll_seconds=-1: a finite number, 0 or more"),
        ("workers.poll_seconds=inf", "a finite number"),
        ("workers.poll_seconds=1,2", "one number is needed"),
        ("boottime_offset_seconds=-1", "a finite number, 0 or more"),
        ("wall_offset_seconds=soon", "a finite number is needed"),
        ("wall_offset_seconds=1;clock_file=/tmp/x", "exclude each other"),
    ],
)
def test_what_means_nothing_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_timing(text)


def test_clocks_can_be_ahead_or_behind() -> None:
    clock = parse_timing(f"wall_offset_seconds=-{DAY}; monotonic_offset_seconds={DAY}; boottime_offset_seconds=7").clock
    assert clock.wall_ns() == pytest.approx(time.time_ns() - DAY * 1e9, abs=60e9)
    assert clock.monotonic() == pytest.approx(time.monotonic() + DAY, abs=60)
    assert clock.boottime() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME) + 7, abs=6)


def test_a_file_steps_the_clocks_while_they_run(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    clock = parse_timing(f"clock_file={path}").clock

    def ahead() -> float:
        return round((clock.wall_ns() - time.time_ns()) / 1e9 / DAY)

    def put(text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(path)

    assert ahead() == 0
    put(f"wall_offset_seconds={DAY}\nboottime_offset_seconds=3\n")
    assert ahead() == 1
    put(f"wall_offset_seconds=-{2 * DAY}")
    assert ahead() == -2
    put("wall_offset_seconds=x")
    with pytest.raises(ValueError, match="wall_offset_seconds=x: a finite number is needed"):
        clock.wall_ns()
    put("tea_offset_seconds=1")
    with pytest.raises(ValueError, match="there is no offset 'tea_offset_seconds'; there are wall_offset_seconds"):
        clock.monotonic()
    path.unlink()
    assert ahead() == 0


async def test_the_machine_s_clocks_go_on_by_themselves() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic(), clock.boottime(), clock.wall_ns()
    await clock.sleep(0.01)
    assert clock.monotonic() - before[0] >= 0.01
    assert clock.boottime() - before[1] >= 0.01
    assert clock.wall_ns() > before[2]


def run(text: str) -> subprocess.CompletedProcess[str]:
    code = "from gateway.timing import timing_from_environment as t; print(t().workers.poll_seconds, t() is t())"
    environment = os.environ | {VARIABLE: text, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_a_process_takes_its_timing_from_the_environment_and_says_so_once() -> None:
    done = run("workers.poll_seconds=0.5")
    assert done.stdout == "0.5 True\n"
    assert re.fullmatch(r"ENTREPOT_TIMING: workers.poll_seconds=0.5, process \d+\n", done.stderr)
    assert run("").stderr == ""


def test_a_mistake_in_the_environment_is_a_mistake_of_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "scale=slow")
    _announced.cache_clear()
    with pytest.raises(Misconfigured, match="ENTREPOT_TIMING: scale=slow: a finite number, 0 or more, is needed"):
        timing_from_environment()
