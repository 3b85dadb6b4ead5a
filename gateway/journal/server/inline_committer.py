"""A committer without a socket: for founding a site, restoring one, and tests. Holds the site's lock meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.journal.commands import CommandTable
from gateway.journal.server.batch import NO_SESSION, BatchRunner, Job
from gateway.journal.server.row_cache import RowCache
from gateway.journal.store import Store
from gateway.timing import Timing


class InlineCommitter:
    """Runs commands one by one, each durable when it is answered."""

    def __init__(
        self,
        store: Store,
        commands: CommandTable,
        site_ns: Callable[[], int] | None = None,
        *,
        timing: Timing | None = None,
    ) -> None:
        """*site_ns*: tells the time by the site's clock; None: it is the wall clock's. *timing*: the machine's clocks,
        unless given."""
        self._store = store
        self._site_ns = site_ns
        self._clock = (timing or Timing()).clock
        self._number = 0
        self._cache = RowCache(store)
        self._runner = BatchRunner(self._cache, commands, store.head())

    def run(self, command: Any, session: int = NO_SESSION) -> Any:
        """The command's answer. Raises what it was refused with."""
        return self.run_all([command], session)[0]

    def run_all(self, commands: list[Any], session: int = NO_SESSION) -> list[Any]:
        """The answers of commands that run in one batch, or the error of the first that was refused."""
        now_ns = self._clock.wall_ns()
        self._number = max(self._number + 1, now_ns)  # above those of an earlier committer, in a slot
        jobs = [Job(session, at, self._number, command, 0, None) for at, command in enumerate(commands)]
        site_ns = None if self._site_ns is None else self._site_ns()
        prepared = self._runner.prepare(jobs, now_ns, site_ns=site_ns)
        self._store.write(prepared.batch)
        self._runner.done(prepared)
        answers = {answer.job.slot: answer for answer in prepared.answers}
        for answer in answers.values():
            if answer.error is not None:
                raise answer.error
        return [answers[at].value for at in range(len(commands))]
