"""All durations, in groups, with their defaults.

A `Pause` is how long somebody waits before looking, trying or doing again: a shorter one only costs more processor
time, so tests shorten them all at once. A `Limit` is after how long somebody gives up, or counts something as settled,
forgotten or in trouble: a shorter one makes a busy machine fail, so each is changed by name only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from gateway.timing.clock import Clock, SystemClock

Pause: TypeAlias = Annotated[float, "pause"]
Limit: TypeAlias = Annotated[float, "limit"]


@dataclass(frozen=True, kw_only=True)
class WorkersTiming:
    """The loop of each background worker (`gateway/blocks/working.py`)."""

    poll_seconds: Pause = 0.25
    """Between two looks of an idle worker at whether the journal has grown."""
    idle_seconds: Pause = 5.0
    """After which an idle worker looks for work in any case: some falls due with time."""
    held_back_seconds: Pause = 0.5
    """The same while there is work that only waits for readers."""
    failed_most_seconds: Pause = 30.0
    """Longest pause after a step that failed; the first one is `poll_seconds`, and each next one twice as long."""


@dataclass(frozen=True, kw_only=True)
class SweeperTiming:
    """Deleting what ended sessions left (`gateway/blocks/sweeper.py`)."""

    retry_seconds: Pause = 30.0
    """Before a session that could not be listed on every backend is tried again."""
    upload_most_seconds: Limit = 3_600.0
    """So long after the end of a session no put of it is on its way any more. A shorter one may lose bytes."""


@dataclass(frozen=True, kw_only=True)
class CompactorTiming:
    """Writing packs anew (`gateway/blocks/compactor.py`)."""

    rest_seconds: Pause = 60.0
    """Before the next pack is written anew, after a new one was not where it had been put."""


@dataclass(frozen=True, kw_only=True)
class MoverTiming:
    """Making and dropping copies (`gateway/reconcile/mover.py`)."""

    look_seconds: Pause = 0.25
    """Before the next look, where the last one found fewer blocks than there is room for: what is written one by one
    is then looked up and copied together."""
    gather_seconds: Pause = 0.1
    """Before the journal hears of a copy, in the same case, so that one command names several."""
    revisit_seconds: Pause = 0.5
    """Shortest time after which blocks that were passed over are looked at again."""
    skip_seconds: Pause = 0.000_1
    """The same for each row that was passed over."""


@dataclass(frozen=True, kw_only=True)
class OldCopiesTiming:
    """Letting go of the copies of moved blocks (`gateway/reconcile/old_copies.py`)."""

    confirmed_seconds: Limit = 60.0
    """How long it counts that every backend that should hold a block was found to have it."""
    warn_again_seconds: Pause = 60.0
    """Between two warnings that a backend does not have what it confirmed."""


@dataclass(frozen=True, kw_only=True)
class BlockBackoffTiming:
    """Blocks that could not be brought where they should be (`gateway/reconcile/putting_off.py`)."""

    first_seconds: Pause = 1.0
    """Before the second attempt; twice as long before each next one."""
    most_seconds: Pause = 3_600.0
    """Longest pause between two attempts."""
    aside_seconds: Pause = 86_400.0
    """Between two attempts for a block that was set aside after too many, or is lost."""
    pinned_seconds: Pause = 600.0
    """Between two looks at a block that only waits for a backup, or is dead."""


@dataclass(frozen=True, kw_only=True)
class BackendBackoffTiming:
    """Backends that copies failed on (`gateway/reconcile/resting.py`)."""

    first_seconds: Pause = 1.0
    """How long a backend is left alone after its first failure; twice as long after each next one."""
    most_seconds: Pause = 60.0
    """Longest such pause, also where the backend asks for more."""


@dataclass(frozen=True, kw_only=True)
class ThrottleTiming:
    """Copies that give way to clients (`gateway/reconcile/giving_way.py`)."""

    wait_most_seconds: Pause = 60.0
    """Longest time for which no copy is begun while clients need the processors."""
    rest_most_seconds: Pause = 2.0
    """Longest rest between two slices of copies."""
    look_seconds: Pause = 0.25
    """Between two looks at the kernel's figures."""
    calm_seconds: Pause = 2.0
    """For so long clients must have left the processors alone before copies are made at full speed."""


@dataclass(frozen=True, kw_only=True)
class PlannerTiming:
    """The walks over all blocks (`gateway/reconcile/planner.py`)."""

    second_walk_seconds: Pause = 600.0
    """Between a first walk and the second one, which finds what was written under the older policy meanwhile."""
    daily_walk_seconds: Pause = 86_400.0
    """Between two walks from then on."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """All durations of a process, and its clocks."""

    workers: WorkersTiming = field(default_factory=WorkersTiming)
    sweeper: SweeperTiming = field(default_factory=SweeperTiming)
    compactor: CompactorTiming = field(default_factory=CompactorTiming)
    mover: MoverTiming = field(default_factory=MoverTiming)
    old_copies: OldCopiesTiming = field(default_factory=OldCopiesTiming)
    block_backoff: BlockBackoffTiming = field(default_factory=BlockBackoffTiming)
    backend_backoff: BackendBackoffTiming = field(default_factory=BackendBackoffTiming)
    throttle: ThrottleTiming = field(default_factory=ThrottleTiming)
    planner: PlannerTiming = field(default_factory=PlannerTiming)
    clock: Clock = field(default_factory=SystemClock)
