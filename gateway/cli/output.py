"""What the commands print: tables and sentences for people, JSON for programs, errors on standard error.

All output goes through this module. Names and messages that come from a user, a store or a file cannot control the
terminal: unprintable characters are escaped as in Python's string literals. A line of text stays on one line, so a
name that contains a line break cannot forge another line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from typer.exceptions import TyperException

from gateway.errors import (
    AccessKeyExists,
    BucketNotEmpty,
    EntrepotError,
    NoSuchAccessKey,
    NoSuchBucket,
    NoSuchUser,
    SessionExpired,
    UserExists,
)

_MESSAGES: dict[type[EntrepotError], str] = {
    NoSuchUser: "there is no user {}",
    NoSuchAccessKey: "there is no access key {}",
    NoSuchBucket: "there is no bucket {}",
    UserExists: "there is a user {} already",
    AccessKeyExists: "the access key {} is taken",
    BucketNotEmpty: "the bucket {} is not empty",
    SessionExpired: "the session {} with the committer has ended: try again",
}


def escape_unprintable(text: str) -> str:
    """Return *text* on one line. Characters that are not printable (controls, line separators, overrides of the writing
    direction, lone surrogates, …) are escaped, as `\\x1b`, `\\n`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def to_json(value: Any) -> str:
    """Return *value* as JSON in ASCII. The only control characters are the line breaks between members."""
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")


def error_message(error: BaseException) -> str:
    """Return the message for people; it may have several lines."""
    form = _MESSAGES.get(type(error)) if isinstance(error, EntrepotError) else None
    if form is not None:
        return form.format(*(escape_unprintable(str(each)) for each in error.args))
    if isinstance(error, TyperException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror:
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else error.filename
        return f"{escape_unprintable(str(name))}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def print_error(error: BaseException, *, as_json: bool) -> None:
    """Print *error* on standard error. All lines but the first are indented, so a line break inside a name cannot look
    like another message."""
    if as_json:
        code = error.wire_code if isinstance(error, EntrepotError) else type(error).__name__
        line = json.dumps({"error": code, "message": error_message(error)}).replace("\x7f", "\\u007f")
        print(line, file=sys.stderr)  # noqa: T201
    else:
        print(f"entrepot: {_indent_lines(error_message(error))}", file=sys.stderr)  # noqa: T201


def _indent_lines(text: str) -> str:
    """Escape each line of *text*, and indent all but the first."""
    first, *more = text.split("\n")
    return "\n".join([escape_unprintable(first), *(f"  {escape_unprintable(line)}" for line in more)])


def print_line(line: str = "") -> None:
    """Print one line on standard output, and flush."""
    print(escape_unprintable(line), flush=True)  # noqa: T201


def print_text(text: str) -> None:
    """Print a text of several lines, for example a config file. Tabs are kept."""
    for line in text.rstrip().splitlines():
        print("\t".join(map(escape_unprintable, line.split("\t"))), flush=True)  # noqa: T201


def print_result(value: Any, *, as_json: bool, text: Callable[[], list[str]]) -> None:
    """Print *value* as JSON, or the lines that *text* returns."""
    if as_json:
        print(to_json(value), flush=True)  # noqa: T201
        return
    for line in text():
        print_line(line)


def format_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns."""
    shown = [[escape_unprintable(cell) for cell in row] for row in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in shown)
    return [line.rstrip() for line in lines]


class _Formatter(logging.Formatter):
    """Formats a log record as `print_error` formats an error."""

    def format(self, record: logging.LogRecord) -> str:
        return _indent_lines(super().format(record))


def print_logged_warnings() -> None:
    """Print the warnings and errors that this process logs on standard error. The processes of a served site replace
    this handler."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Formatter())
    logging.getLogger().addHandler(handler)


_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def format_bytes(count: int) -> str:
    """Return a size for people: with three digits and a binary unit, such as `1.21 GiB`."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in _UNITS:
        size /= 1024
        if size < 999.5 or unit == _UNITS[-1]:
            return f"{size:.3g} {unit}"
    raise AssertionError(count)


def format_time(at_ns: int) -> str:
    """Return *at_ns*, nanoseconds since the epoch, as UTC with seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ns // 1_000_000_000))


class Progress(Protocol):
    """Reports that *done* of *of* units of *what* are done. *of* is 0 if the total is not known."""

    def __call__(self, done: int, of: int, what: str = "") -> None: ...


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Progress]:
    """Show a progress bar on standard error, unless *quiet* or if standard error is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield _ignore_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(escape_unprintable(what), total=None)

        def on_progress(done: int, of: int, what: str = what) -> None:
            bars.update(task, completed=done, total=of or None, description=escape_unprintable(what))

        yield on_progress


@contextmanager
def step_progress(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of work that names its steps: the callback takes the name of the step first."""
    with progress("", quiet=quiet) as on_progress:
        yield lambda what, done, of: on_progress(done, of, what)


def _ignore_progress(done: int, of: int, what: str = "") -> None:
    """Do nothing."""
