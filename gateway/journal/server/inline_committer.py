"""A committer without a socket or a thread, for founding a site, restoring one, and tests. The caller holds the site's
lock meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.journal.commands import CommandTable
from gateway.journal.server.batch import NO_SESSION, BatchRunner, Job
from gateway.journal.server.row_cache import RowCache
from gateway.journal.store import Store
from gateway.timing import Timing


class InlineCommitter:
    """Runs commands in the caller's thread. Each is durable when `run` returns."""

    def __init__(
        self,
        store: Store,
        commands: CommandTable,
        site_ns: Callable[[], int] | None = None,
        *,
        timing: Timing | None = None,
    ) -> None:
        """*site_ns* returns the time of the site's clock; None: the wall clock's time is used. *timing* defaults to the
        machine's clocks."""
        self._store = store
        self._site_ns = site_ns
        self._clock = (timing or Timing()).clock
        self._number = 0
        self._cache = RowCache(store)
        self._runner = BatchRunner(self._cache, commands, store.head())

    def run(self, command: Any, session: int = NO_SESSION) -> Any:
        """Run *command* and return its answer. Raises the error that refused it."""
        return self.run_all([command], session)[0]

    def run_all(self, commands: list[Any], session: int = NO_SESSION) -> list[Any]:
        """Run *commands* in one batch and return their answers. Raises the error of the first that was refused; the
        others are committed all the same."""
        now_ns = self._clock.wall_ns()
        self._number = max(self._number + 1, now_ns)  # above the numbers that an earlier committer used in a slot
        jobs = [Job(session, at, self._number, command, 0, None) for at, command in enumerate(commands)]
        site_ns = None if self._site_ns is None else self._site_ns()
        prepared = self._runner.prepare(jobs, now_ns, site_ns=site_ns)
        self._store.write(prepared.batch)
        self._runner.mark_durable(prepared)
        results = {result.job.slot: result for result in prepared.results}
        for result in results.values():
            if result.error is not None:
                raise result.error
        return [results[at].value for at in range(len(commands))]
