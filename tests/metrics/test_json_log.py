"""The log: whole lines of JSON, whatever stands in them, and nobody waits for a slow reader."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.metrics import json_log
from gateway.metrics.json_log import DEBUG, INFO, WARNING, Handler, JsonLog
from gateway.metrics.requests import RequestLog
from gateway.timing import Timing
from tests.clocks import ManualClock


class CompletedRequest(NamedTuple):
    request_id: str = "0123"
    operation: str = "GetObject"
    method: str = "GET"
    path: str = "/bucket/key"
    status: int = 200
    error: str = ""
    bytes_in: int = 0
    bytes_out: int = 5
    seconds: float = 0.001
    user: str = "root"
    access_key: str = ""
    remote: str = "127.0.0.1"


class Log:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.lines = JsonLog("worker 1", INFO, self.writing, timing=Timing())

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.read_raw().splitlines()]

    def read_raw(self) -> str:
        self.lines.close()
        os.close(self.writing)
        with os.fdopen(self.reading) as file:
            return file.read()


@pytest.fixture
def log() -> Iterator[Log]:
    yield Log()


def test_a_line_says_when_who_and_what(log: Log) -> None:
    log.lines.write(WARNING, "a thing happened", count=3, whole=True, name='with "quotes"\n')
    (line,) = log.read()
    at = line.pop("at")
    assert at.endswith("Z") and "T" in at
    assert line == {
        "level": "warning",
        "process": "worker 1",
        "event": "a thing happened",
        "count": 3,
        "whole": True,
        "name": 'with "quotes"\n',
    }


def test_what_is_below_the_level_is_not_written(log: Log) -> None:
    log.lines.write(DEBUG, "too much")
    assert log.read() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(path=st.text(), method=st.text(), user=st.text())
def test_a_request_is_one_line_whatever_stands_in_its_path(path: str, method: str, user: str) -> None:
    log = Log()
    RequestLog(log.lines).write(CompletedRequest(path=path, method=method, user=user))
    (line,) = log.read()
    assert line["path"] == path[:1_024]
    assert line["user"] == user
    assert line["operation"] == "GetObject"
    assert line["seconds"] == 0.001


def test_what_libraries_log_becomes_a_line_with_its_traceback(log: Log) -> None:
    logger = logging.getLogger("a library of this test")
    logger.propagate = False
    logger.addHandler(Handler(log.lines))
    try:
        raise OSError("gone")
    except OSError:
        logger.exception("lost %s", "it")
    (line,) = log.read()
    assert (line["event"], line["message"]) == ("lost", "lost it")
    assert line["level"] == "error"
    assert "OSError: gone" in line["traceback"]


def test_an_event_has_one_name_whatever_its_arguments_are(log: Log) -> None:
    emit = handler_of(log)
    emit("backend %r is unavailable: %s", "cloud", "gone")
    emit("the blocks of session %x are not swept for now: %s", 17, "away")
    emit("nothing %s to be replaced")
    assert [(line["event"], line.get("message")) for line in log.read()] == [
        ("backend is unavailable", "backend 'cloud' is unavailable: gone"),
        ("the blocks of session are not swept for now", "the blocks of session 11 are not swept for now: away"),
        ("nothing %s to be replaced", None),
    ]


def handler_of(log: Log) -> Callable[..., None]:
    handler = Handler(log.lines)

    def emit(template: str, *arguments: object) -> None:
        handler.handle(logging.LogRecord("a.module", logging.WARNING, __file__, 1, template, arguments, None))

    return emit


def test_a_repeated_message_is_logged_once_a_minute_with_a_count(log: Log) -> None:
    clock = ManualClock()
    log.lines.clock = clock
    emit = handler_of(log)
    for second in range(150):
        for session in (1, 2):
            emit("session %x is not swept: %s", session, "away")
        clock.advance(1.0)
        if second == 100:
            emit("something else")
    lines = [(line.get("message", line["event"]), line.get("repeated", 0)) for line in log.read()]
    one, two = (f"session {n} is not swept: away" for n in (1, 2))
    assert lines == [(one, 0), (two, 0), (one, 118), (two, 0), ("something else", 0), (one, 118), (two, 0)]


def test_one_message_with_ever_new_arguments_has_ten_lines_a_minute(log: Log) -> None:
    log.lines.clock = clock = ManualClock()
    emit = handler_of(log)
    for n in range(1_000):
        emit("session %x is not swept", n)
    clock.advance(60.0)
    emit("session %x is not swept", 0)
    lines = log.read()
    assert len(lines) == 11
    assert lines[-1]["repeated"] == 990


def test_on_a_terminal_the_log_is_text_that_cannot_change_the_terminal(log: Log) -> None:
    log.lines.configure("info", "text")
    log.lines.write(WARNING, "a thing\x1b[2J happened", count=3, why="no such\nfolder", name="disk")
    (line,) = log.read_raw().splitlines()
    assert line[13:] == ' WARNING worker 1: a thing\\u001b[2J happened count=3 why="no such\\nfolder" name=disk'


def test_a_request_that_could_not_be_authenticated_is_logged_with_its_access_key_id(log: Log) -> None:
    RequestLog(log.lines).write(CompletedRequest(status=403, error="InvalidAccessKeyId", user="", access_key="A" * 200))
    (line,) = log.read()
    assert (line["access_key"], line["user"]) == ("A" * 128, "")


def test_a_reader_that_is_stuck_costs_lines_but_no_memory_and_no_time(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_log, "PENDING_LINES_MAX", 100)
    for _ in range(5_000):
        log.lines.write(INFO, "x" * 1_000)  # the pipe holds 64 KiB and nobody reads
    assert len(log.lines._pending) <= 100
    assert log.lines._dropped > 0
    os.close(log.reading)
    log.lines.close()
    os.close(log.writing)
