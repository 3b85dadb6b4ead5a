"""Which backends fail the mover: those that fail every call, and those that only store nothing (a full disk)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from gateway.placement.backend_backoff import BackendBackoff
from gateway.reconcile.copy_ops import BackendFailed, ValueRejected, WorkItem
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.timing import Timing

_log = logging.getLogger(__name__)


class BackendHealth:
    """The health of all backends, by the journal's ids, as the mover has met it."""

    def __init__(self, targets: PlacementTargets, timing: Timing) -> None:
        self._targets = targets
        pauses = timing.backend_backoff
        self.call_backoff: BackendBackoff[int] = BackendBackoff(timing.clock, pauses.first_seconds, pauses.most_seconds)
        """Backends that fail every call."""
        self.put_backoff: BackendBackoff[int] = BackendBackoff(timing.clock, pauses.first_seconds, pauses.most_seconds)
        """Backends that store nothing. They can still be read and emptied."""
        self.clock = self.call_backoff.clock

    def __bool__(self) -> bool:
        """Whether any backend has failed and not succeeded since."""
        return bool(self.call_backoff or self.put_backoff)

    def record_failure(self, failure: BackendFailed) -> None:
        """Leave the backend alone for a while."""
        backoff = self.put_backoff if failure.affects_only_puts else self.call_backoff
        if backoff.record_failure(failure.backend_id, str(failure.why), failure.asked_seconds):
            _log.warning("copies on backend %r wait: %s", self._name(failure.backend_id), failure.why)

    def record_rejection_of(self, failure: BackendFailed, block: bytes) -> bool:
        """Record that a backend rejected *block*, if that is what *failure* says. Returns whether it is taken for a
        fault of the block, not of the backend."""
        return isinstance(failure, ValueRejected) and not self.put_backoff.record_rejection(failure.backend_id, block)

    def can_read(self, backend_id: int, block: bytes) -> bool:
        """Whether the backend may be asked for a copy of *block*, or to delete one, now."""
        return self.call_backoff.allows(backend_id, block)

    def can_write(self, backend_id: int, block: bytes) -> bool:
        """Whether a copy of *block* may be put on the backend now."""
        return self.call_backoff.allows(backend_id, block) and self.put_backoff.allows(backend_id, block)

    def record_success(self, backend_ids: Collection[int], began: float) -> None:
        """Record that these backends answered calls that were made at *began*, by `clock`."""
        self.call_backoff.record_success(backend_ids, began)

    def record_stored(self, backend_ids: Collection[int], began: float) -> None:
        """Record that these backends stored what was put there at *began*, by `clock`."""
        self.call_backoff.record_success(backend_ids, began)
        self.put_backoff.record_success(backend_ids, began)

    def try_start_trials(
        self, item: WorkItem, have: Collection[int], missing: Collection[int], needed: Collection[int] = ()
    ) -> bool:
        """Start a trial of the block at those of its backends that have failed. Returns False, and starts none, if
        everything that could be done for the block now would fail.

        *have*: the backends that hold it. *missing*: those where it should be put. *needed*: backends without any of
        which nothing can be done."""
        if not self:
            return True
        if not all(self.can_read(each, item.block) for each in needed):
            return False
        suspects = [each for each in item.suspects if each in have]
        writable = [each for each in missing if self.can_write(each, item.block)]
        checkable = [each for each in suspects if self.can_read(each, item.block)]
        sources = [each for each in have if self.can_read(each, item.block)]
        if ((missing or suspects) and not writable and not checkable) or (have and not sources):
            return False
        self.start_trial([*writable, *checkable, *sources, *needed], item.block)
        self.put_backoff.start_trial(writable, item.block)
        return True

    def start_trial(self, backend_ids: Iterable[int], block: bytes) -> None:
        """Make *block* the only one that is tried at those of these backends that fail every call."""
        self.call_backoff.start_trial(backend_ids, block)

    def end_trial(self, block: bytes) -> None:
        """Let other blocks be tried where *block* was."""
        self.call_backoff.end_trial(block)
        self.put_backoff.end_trial(block)

    def waiting(self) -> dict[str, str]:
        """Return the names of the backends whose copies wait, each with a sentence that says why."""
        reasons = self.put_backoff.reasons() | self.call_backoff.reasons()
        return {self._name(backend_id): f"copies wait: {reason}" for backend_id, reason in reasons.items()}

    def _name(self, backend_id: int) -> str:
        return self._targets.names.get(backend_id, "?")
