"""The log: one line for each event, on standard error, as JSON or as text for people. Logging a line takes a few
microseconds and never blocks.

Lines are queued in memory and a thread writes them, so a slow reader of standard error delays no request. If more than
`PENDING_LINES_MAX` lines are queued, further ones are dropped, and the next flush logs how many.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import deque
from contextlib import suppress
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from queue import SimpleQueue
from typing import Any

from gateway.metrics.repeated_lines import MESSAGES_MAX, RepeatedLines
from gateway.timing import Timing

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
_NAMES = {number: name for name, number in LEVELS.items()}

PENDING_LINES_MAX = 10_000
_ARGUMENT = re.compile(r" ?[(:]? ?%[-#0-9.]*[a-zA-Z]\)?")
_SPACES = re.compile(r"\s+")
_QUOTED_CHARS = set(' "=')


class JsonLog:
    """The log of a process, whose name is in each line."""

    def __init__(self, process: str, level: int = INFO, descriptor: int = 2, *, timing: Timing) -> None:
        self.process = quoted(process)
        self.level = level
        self.as_text = False
        """Write lines for people, instead of JSON. The writing thread formats them."""
        self._descriptor = descriptor
        self._timing = timing.metrics
        self.clock, self.repeat_seconds = timing.clock, timing.metrics.repeat_seconds
        self._wall_ns = timing.clock.wall_ns
        self._pending: deque[str] = deque()
        self._dropped = 0
        self._wake: SimpleQueue[None] = SimpleQueue()
        """Wakes the writing thread. It is no `Event`: setting one takes a lock, and a destructor that logs while its
        thread holds that lock would deadlock. `SimpleQueue.put` is reentrant."""
        self._woken = False
        """The writing thread was woken and has not begun to write, so it need not be woken again."""
        self._stopping = threading.Event()
        self._second = (0, "")
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def configure(self, level: str, log_format: str) -> None:
        """Set the level, and the format: `json`, `text`, or `auto`, which is text on a terminal."""
        self.level = LEVELS[level]
        self.as_text = log_format == "text" or (log_format == "auto" and os.isatty(self._descriptor))

    def write(self, level: int, event: str, **fields: Any) -> None:
        """Log *event* with *fields* (text, numbers or booleans), unless *level* is below the log's level."""
        if level < self.level:
            return
        rest = "".join(f",{quoted(key)}:{_json(value)}" for key, value in fields.items())
        self.put(f'"level":"{_NAMES.get(level, "info")}","process":{self.process},"event":{quoted(event)}{rest}')

    def put(self, members: str) -> None:
        """Log a line of JSON *members* that are formatted already; the time is added."""
        if len(self._pending) >= PENDING_LINES_MAX:
            self._dropped += 1
            return
        self._pending.append(f'{{"at":"{self._now()}",{members}}}\n')
        if not self._woken:
            self._woken = True
            self._wake.put(None)

    def close(self) -> None:
        """Write the queued lines and end the thread."""
        self._stopping.set()
        self._wake.put(None)
        self._thread.join(self._timing.close_seconds)

    def _now(self) -> str:
        """Return the UTC time to the millisecond. The text of a second is formatted once."""
        second, rest_ns = divmod(self._wall_ns(), 1_000_000_000)
        if second != self._second[0]:
            self._second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._second[1]}.{rest_ns // 1_000_000:03d}Z"

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.get()
            self._stopping.wait(self._timing.flush_seconds)
            # Cleared before the flush: a line that is added during it is written by it or by the next one.
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
        lines = map(_to_text, pending) if self.as_text else pending
        # DEL is the only control character that JSON does not escape
        left = memoryview("".join(lines).replace("\x7f", "\\u007f").encode())
        with suppress(OSError):  # standard error is closed, and there is no other place to report that
            while left:
                left = left[os.write(self._descriptor, left) :]


class Handler(logging.Handler):
    """A handler of `logging` that writes to the JSON log. A message that is repeated is logged once a minute, with the
    number of lines that were left out in between (`RepeatedLines`)."""

    def __init__(self, lines: JsonLog) -> None:
        super().__init__()
        self._lines = lines
        self._repeated = RepeatedLines(lines.clock, lines.repeat_seconds)

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name}
        if record.exc_info and record.exc_info[0] is not None:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        event = template = str(record.msg)
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = template
        if record.args:
            event, fields["message"] = _name_of_event(template), message
        left_out = self._repeated.count_left_out(record.name, template, message)
        if left_out is None:
            return
        if left_out:
            fields["repeated"] = left_out
        self._lines.write(record.levelno, event, **fields)


def take_over_logging(lines: JsonLog) -> None:
    """Send everything that this process logs through `logging` to *lines*, and nowhere else."""
    root = logging.getLogger()
    root.handlers[:] = [Handler(lines)]
    root.setLevel(max(lines.level, INFO))


@lru_cache(MESSAGES_MAX)
def _name_of_event(template: str) -> str:
    """Return the message *template* without its arguments: a name that is the same for each such event."""
    return _SPACES.sub(" ", _ARGUMENT.sub("", template)).strip(" ,.:;")


def _to_text(line: str) -> str:
    """Return a line of JSON as a line for people."""
    fields: dict[str, Any] = json.loads(line)
    at, level, process = fields.pop("at"), fields.pop("level"), fields.pop("process")
    event, message = fields.pop("event"), fields.pop("message", "")
    traceback = fields.pop("traceback", "")
    fields.pop("logger", None)
    rest = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
    indented = "".join(f"\n    {_printable(each)}" for each in traceback.splitlines())
    return f"{at[11:]} {level.upper():7} {process}: {_printable(message or event)}{rest}{indented}\n"


def _shown(value: Any) -> str:
    if not isinstance(value, str):
        return _json(value)
    return value if value.isprintable() and value and not set(value) & _QUOTED_CHARS else quoted(value)


def _printable(text: str) -> str:
    """Return *text* with its control characters escaped, so that no name in it can change what a terminal shows."""
    return text if text.isprintable() else quoted(text)[1:-1]


def _json(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return quoted(str(value))
