"""What the mover knows of backends in trouble: which ones do nothing that they are asked, which only store nothing."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from gateway.placement.backend_backoff import BackendBackoff
from gateway.reconcile.copy_ops import BackendFailed, Task, ValueRejected
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.timing import Timing

_log = logging.getLogger(__name__)


class BackendHealth:
    """Of all backends, by the journal's ids."""

    def __init__(self, wishes: PlacementTargets, timing: Timing) -> None:
        self._wishes = wishes
        pauses = timing.backend_backoff
        self.resting: BackendBackoff[int] = BackendBackoff(timing.clock, pauses.first_seconds, pauses.most_seconds)
        """Those that do nothing that they are asked, and"""
        self.full: BackendBackoff[int] = BackendBackoff(timing.clock, pauses.first_seconds, pauses.most_seconds)
        """those that store nothing."""
        self.clock = self.resting.clock

    def __bool__(self) -> bool:
        return bool(self.resting or self.full)

    def hear(self, trouble: BackendFailed) -> None:
        """Leave the backend alone for a while."""
        resting = self.full if trouble.only_storing else self.resting
        if resting.trouble(trouble.place, str(trouble.why), trouble.asked_seconds):
            _log.warning("copies on backend %r wait: %s", self._name(trouble.place), trouble.why)

    def is_odd(self, trouble: BackendFailed, block: bytes) -> bool:
        """Whether it is taken for the block's own, and not for the backend's."""
        return isinstance(trouble, ValueRejected) and not self.full.odd(trouble.place, block)

    def answers(self, place: int, block: bytes) -> bool:
        """Whether the backend may be asked for something of *block* now, and"""
        return self.resting.admits(place, block)

    def takes(self, place: int, block: bytes) -> bool:
        """whether something of it may be put there."""
        return self.resting.admits(place, block) and self.full.admits(place, block)

    def did(self, places: Collection[int], began: float) -> None:
        """They answered what was asked of them at *began*."""
        self.resting.well(places, began)

    def stored(self, places: Collection[int], began: float) -> None:
        """They stored what was put there at *began*."""
        self.resting.well(places, began)
        self.full.well(places, began)

    def hold_up(
        self, task: Task, have: Collection[int], missing: Collection[int], needed: Collection[int] = ()
    ) -> bool:
        """Whether all that could be done for a block now would fail. If not, it is the one that is tried on those of
        its backends that were in trouble. *needed*: backends without any of which nothing can be done."""
        if not self:
            return False
        if not all(self.answers(each, task.block) for each in needed):
            return True
        suspects = [each for each in task.suspects if each in have]
        open_ = [each for each in missing if self.takes(each, task.block)]
        asked = [each for each in suspects if self.answers(each, task.block)]
        sources = [each for each in have if self.answers(each, task.block)]
        if ((missing or suspects) and not open_ and not asked) or (have and not sources):
            return True
        self.asking([*open_, *asked, *sources, *needed], task.block)
        self.full.begin(open_, task.block)
        return False

    def asking(self, places: Iterable[int], block: bytes) -> None:
        """*block* is tried there."""
        self.resting.begin(places, block)

    def done(self, block: bytes) -> None:
        """*block* is not tried any more."""
        self.resting.done(block)
        self.full.done(block)

    def told(self) -> dict[str, str]:
        """Backends by name whose copies wait, and for what."""
        words = self.full.words() | self.resting.words()
        return {self._name(place): f"copies wait: {word}" for place, word in words.items()}

    def _name(self, place: int) -> str:
        return self._wishes.names.get(place, "?")
