"""Other durations and clocks for a process, as a text says: what tests set in the environment of the processes they
start, and what they give to what they run in process.

    ENTREPOT_TIMING="scale=0.1; sweeper.upload_most_seconds=2; wall_offset_seconds=3600"

    scale=FACTOR                  every `Pause` times FACTOR; limits stay
    GROUP.FIELD=SECONDS           one duration, which `scale` leaves alone; SECONDS,SECONDS,… where it is a series
    wall_offset_seconds=SECONDS   the wall clock is so far ahead of the machine's, or behind it (negative)
    monotonic_offset_seconds=…    the same for the other clocks, which are never behind
    boottime_offset_seconds=…
    clock_file=PATH               a file that holds the three offsets, so that a test can step the clocks of a running
                                  process: it is read again whenever it was replaced, and need not be there

Production sets no such variable. A process that finds it says so on standard error.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_type_hints

from gateway.errors import Misconfigured
from gateway.timing.clock import Clock, OffsetClock, Offsets, OffsetsFile, SystemClock
from gateway.timing.durations import Timing

VARIABLE = "ENTREPOT_TIMING"
_OFFSETS = {"wall_offset_seconds": 0, "monotonic_offset_seconds": 1, "boottime_offset_seconds": 2}


def timing_from_environment() -> Timing:
    """The timing of this process: the defaults, unless the variable says otherwise. Raises `Misconfigured` where what
    it says means nothing."""
    text = os.environ.get(VARIABLE, "")
    return _announced(text) if text else Timing()


@functools.lru_cache(maxsize=1)
def _announced(text: str) -> Timing:
    try:
        timing = parse_timing(text)
    except ValueError as error:
        raise Misconfigured(f"{VARIABLE}: {error}") from error
    os.write(2, f"{VARIABLE}: {text}, process {os.getpid()}\n".encode())
    return timing


def parse_timing(text: str) -> Timing:
    """The timing that *text* describes, in the form above. Raises `ValueError`, which names the wrong entry."""
    entries = _entries(text)
    timing = _scaled(Timing(), _seconds(entries.pop("scale", "1"), "scale"))
    timing = replace(timing, clock=_clock(entries))
    for name, value in entries.items():
        timing = _changed(timing, name, value)
    return timing


def _entries(text: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    for each in filter(None, (part.strip() for part in text.split(";"))):
        name, is_there, value = (part.strip() for part in each.partition("="))
        if not is_there or not value:
            raise ValueError(f"{each!r} is not NAME=VALUE")
        if name in entries:
            raise ValueError(f"{name!r} is given twice")
        entries[name] = value
    return entries


def _seconds(value: str, name: str, *, least: float = 0.0) -> float:
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found < least:
        what = "a finite number" if least == -math.inf else "a finite number, 0 or more,"
        raise ValueError(f"{name}={value}: {what} is needed")
    return found


# ---- durations ------------------------------------------------------------------------------------------------------


def _scaled(timing: Timing, factor: float) -> Timing:
    if factor == 1:
        return timing
    changed: dict[str, Any] = {}
    for group in _groups(timing):
        durations = getattr(timing, group)
        pauses = [name for name, kind in _kinds(type(durations)).items() if kind == "pause"]
        changed[group] = replace(durations, **{name: _times(getattr(durations, name), factor) for name in pauses})
    return replace(timing, **changed)


def _times(duration: float | tuple[float, ...], factor: float) -> float | tuple[float, ...]:
    return tuple(each * factor for each in duration) if isinstance(duration, tuple) else duration * factor


def _changed(timing: Timing, name: str, value: str) -> Timing:
    group, _, duration = name.partition(".")
    groups = _groups(timing)
    if group not in groups:
        raise ValueError(f"there is no {name!r}; there are scale, clock_file, {', '.join([*_OFFSETS, *groups])}")
    durations = getattr(timing, group)
    if duration not in _kinds(type(durations)):
        raise ValueError(f"there is no {name!r}; {group} has {', '.join(_kinds(type(durations)))}")
    given = [_seconds(each, name) for each in value.split(",")]
    if isinstance(getattr(durations, duration), tuple):
        return replace(timing, **{group: replace(durations, **{duration: tuple(given)})})
    if len(given) > 1:
        raise ValueError(f"{name}={value}: one number is needed")
    return replace(timing, **{group: replace(durations, **{duration: given[0]})})


def _groups(timing: Timing) -> list[str]:
    return [each.name for each in fields(timing) if each.name != "clock"]


def _kinds(group: type) -> Mapping[str, str]:
    """Each duration of the group, and whether it is a pause or a limit."""
    hints = get_type_hints(group, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


# ---- clocks ---------------------------------------------------------------------------------------------------------


def _clock(entries: dict[str, str]) -> Clock:
    """The clock that the entries ask for, which are taken out."""
    fixed = {name: entries.pop(name) for name in _OFFSETS if name in entries}
    path = entries.pop("clock_file", "")
    if fixed and path:
        raise ValueError(f"clock_file and {next(iter(fixed))} exclude each other: the file holds the offsets")
    if path:
        return OffsetClock(OffsetsFile(path, lambda text: _offsets(_entries(text.replace("\n", ";")))))
    if fixed:
        offsets = _offsets(fixed)
        return OffsetClock(lambda: offsets)
    return SystemClock()


def _offsets(entries: Mapping[str, str]) -> Offsets:
    found = [0.0, 0.0, 0.0]
    for name, value in entries.items():
        if name not in _OFFSETS:
            raise ValueError(f"there is no offset {name!r}; there are {', '.join(_OFFSETS)}")
        found[_OFFSETS[name]] = _seconds(value, name, least=-math.inf if name == "wall_offset_seconds" else 0.0)
    return Offsets._make(found)
