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

    def __init__(self, targets: PlacementTargets, timing: Timing) -> None:
        self._targets = targets
        pauses = timing.backend_backoff
        self.call_backoff: BackendBackoff[int] = BackendBackoff(timing.clock, pauses.first_seconds, pauses.most_seconds)
        """Those that do nothing that they are asked, and"""
        self.put_backoff: BackendBackoff[int] = BackendBackoff(timing.clock, pauses.first_seconds, pauses.most_seconds)
        """those that store nothing."""
        self.clock = self.call_backoff.clock

    def __bool__(self) -> bool:
        return bool(self.call_backoff or self.put_backoff)

    def record_failure(self, trouble: BackendFailed) -> None:
        """Leave the backend alone for a while."""
        backoff = self.put_backoff if trouble.only_storing else self.call_backoff
        if backoff.record_failure(trouble.place, str(trouble.why), trouble.asked_seconds):
            _log.warning("copies on backend %r wait: %s", self._name(trouble.place), trouble.why)

    def is_rejection(self, trouble: BackendFailed, block: bytes) -> bool:
        """Whether it is taken for the block's own, and not for the backend's."""
        return isinstance(trouble, ValueRejected) and not self.put_backoff.record_rejection(trouble.place, block)

    def can_read(self, place: int, block: bytes) -> bool:
        """Whether the backend may be asked for something of *block* now, and"""
        return self.call_backoff.allows(place, block)

    def can_write(self, place: int, block: bytes) -> bool:
        """whether something of it may be put there."""
        return self.call_backoff.allows(place, block) and self.put_backoff.allows(place, block)

    def record_success(self, places: Collection[int], began: float) -> None:
        """They answered what was asked of them at *began*."""
        self.call_backoff.record_success(places, began)

    def record_stored(self, places: Collection[int], began: float) -> None:
        """They stored what was put there at *began*."""
        self.call_backoff.record_success(places, began)
        self.put_backoff.record_success(places, began)

    def must_wait(
        self, task: Task, have: Collection[int], missing: Collection[int], needed: Collection[int] = ()
    ) -> bool:
        """Whether all that could be done for a block now would fail. If not, it is the one that is tried on those of
        its backends that were in trouble. *needed*: backends without any of which nothing can be done."""
        if not self:
            return False
        if not all(self.can_read(each, task.block) for each in needed):
            return True
        suspects = [each for each in task.suspects if each in have]
        open_ = [each for each in missing if self.can_write(each, task.block)]
        asked = [each for each in suspects if self.can_read(each, task.block)]
        sources = [each for each in have if self.can_read(each, task.block)]
        if ((missing or suspects) and not open_ and not asked) or (have and not sources):
            return True
        self.start_trial([*open_, *asked, *sources, *needed], task.block)
        self.put_backoff.start_trial(open_, task.block)
        return False

    def start_trial(self, places: Iterable[int], block: bytes) -> None:
        """*block* is tried there."""
        self.call_backoff.start_trial(places, block)

    def end_trial(self, block: bytes) -> None:
        """*block* is not tried any more."""
        self.call_backoff.end_trial(block)
        self.put_backoff.end_trial(block)

    def waiting(self) -> dict[str, str]:
        """Backends by name whose copies wait, and for what."""
        words = self.put_backoff.reasons() | self.call_backoff.reasons()
        return {self._name(place): f"copies wait: {word}" for place, word in words.items()}

    def _name(self, place: int) -> str:
        return self._targets.names.get(place, "?")
