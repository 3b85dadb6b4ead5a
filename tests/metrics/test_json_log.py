"""The log: whole lines of JSON, whatever stands in them, and nobody waits for a slow reader."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.metrics import json_log
from gateway.metrics.json_log import DEBUG, INFO, WARNING, Handler, JsonLog
from gateway.metrics.requests import RequestLog
from gateway.timing import Timing


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
    remote: str = "127.0.0.1"


class Log:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.lines = JsonLog("worker 1", INFO, self.writing, timing=Timing())

    def read(self) -> list[dict[str, Any]]:
        self.lines.close()
        os.close(self.writing)
        with os.fdopen(self.reading) as file:
            return [json.loads(line) for line in file]


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
    assert line["event"] == "lost it"
    assert line["level"] == "error"
    assert "OSError: gone" in line["traceback"]


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
