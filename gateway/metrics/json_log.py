"""The log: one line of JSON an event, on standard error. Writing a line costs a few microseconds and never waits.

Lines gather in memory and a thread writes them out, so a reader of standard error that is slow or stuck holds no
request up. More than `PENDING_LINES_MAX` are dropped and counted, and the next flush says how many.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from contextlib import suppress
from json.encoder import encode_basestring_ascii as quoted
from queue import SimpleQueue
from typing import Any

from gateway.timing import Timing

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
_NAMES = {number: name for name, number in LEVELS.items()}

PENDING_LINES_MAX = 10_000


class Lines:
    """Where a process's lines go. `process` names it in each of them."""

    def __init__(self, process: str, level: int = INFO, descriptor: int = 2, *, timing: Timing) -> None:
        self.process = quoted(process)
        self.level = level
        self._descriptor = descriptor
        self._timing = timing.metrics
        self._wall_ns = timing.clock.wall_ns
        self._pending: deque[str] = deque()
        self._dropped = 0
        self._wake: SimpleQueue[None] = SimpleQueue()
        """Wakes the thread that writes. No `Event`: setting one takes a lock, and a destructor that logs while its own
        thread holds that lock would wait for ever. `SimpleQueue.put` is reentrant."""
        self._woken = False
        """The thread was woken and has not begun to write yet, so it need not be woken again."""
        self._stopping = threading.Event()
        self._second = (0, "")
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, level: int, event: str, **fields: Any) -> None:
        """One line, unless *level* is below the log's. Fields are text, numbers or booleans."""
        if level < self.level:
            return
        rest = "".join(f",{quoted(key)}:{_json(value)}" for key, value in fields.items())
        self.put(f'"level":"{_NAMES.get(level, "info")}","process":{self.process},"event":{quoted(event)}{rest}')

    def put(self, members: str) -> None:
        """One line from JSON members that are written out already, without a time."""
        if len(self._pending) >= PENDING_LINES_MAX:
            self._dropped += 1
            return
        self._pending.append(f'{{"at":"{self._now()}",{members}}}\n')
        if not self._woken:
            self._woken = True
            self._wake.put(None)

    def close(self) -> None:
        """Write out what is left and end."""
        self._stopping.set()
        self._wake.put(None)
        self._thread.join(self._timing.close_seconds)

    def _now(self) -> str:
        """UTC to the millisecond; the text of a second is made once."""
        second, rest_ns = divmod(self._wall_ns(), 1_000_000_000)
        if second != self._second[0]:
            self._second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._second[1]}.{rest_ns // 1_000_000:03d}Z"

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.get()
            self._stopping.wait(self._timing.flush_seconds)
            # Cleared first: a line that comes during the flush is written by this flush or by the next one.
            self._woken = False
            self._flush()
        self._flush()

    def _flush(self) -> None:
        pending = [self._pending.popleft() for _ in range(len(self._pending))]
        if not pending:
            return
        dropped, self._dropped = self._dropped, 0
        if dropped:
            pending.append(
                f'{{"at":"{self._now()}","level":"warning","process":{self.process},'
                f'"event":"log lines dropped","count":{dropped}}}\n'
            )
        # the only control character that JSON may hold as it is
        left = memoryview("".join(pending).replace("\x7f", "\\u007f").encode())
        with suppress(OSError):  # nobody reads standard error any more, and there is nowhere else to say so
            while left:
                left = left[os.write(self._descriptor, left) :]


class Handler(logging.Handler):
    """Takes what libraries log through `logging` into the lines."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name}
        if record.exc_info and record.exc_info[0] is not None:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = str(record.msg)
        self._lines.write(record.levelno, message, **fields)


def take_over_logging(lines: Lines) -> None:
    """What goes through `logging` in this process goes into *lines* from here on, and nowhere else."""
    root = logging.getLogger()
    root.handlers[:] = [Handler(lines)]
    root.setLevel(max(lines.level, INFO))


def _json(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return quoted(str(value))
