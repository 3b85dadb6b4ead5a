"""What the commands print: tables and sentences for people, JSON for programs, errors on standard error.

Everything that is printed goes through here, and nothing that a user, a store or a file put into a name or a message
reaches the terminal as a command to it: what is not printable is escaped, as Python's string literals do. A line of
text stays one line, so that no name forges another.
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

_SENTENCES: dict[type[EntrepotError], str] = {
    NoSuchUser: "there is no user {}",
    NoSuchAccessKey: "there is no access key {}",
    NoSuchBucket: "there is no bucket {}",
    UserExists: "there is a user {} already",
    AccessKeyExists: "the access key {} is taken",
    BucketNotEmpty: "the bucket {} is not empty",
    SessionExpired: "the session {} with the committer has ended: try again",
}


def printable(text: str) -> str:
    """*text* on one line, in which every character is one that shows: others (controls, line separators, overrides of
    the writing direction, lone surrogates, …) are escaped, as `\\x1b`, `\\n`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def json_text(found: Any) -> str:
    """*found* as JSON in ASCII, without a control character but the line breaks between its members."""
    return json.dumps(found, indent=2).replace("\x7f", "\\u007f")


def sentence(error: BaseException) -> str:
    """What went wrong, for people; possibly several lines."""
    form = _SENTENCES.get(type(error)) if isinstance(error, EntrepotError) else None
    if form is not None:
        return form.format(*(printable(str(each)) for each in error.args))
    if isinstance(error, TyperException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror:
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else error.filename
        return f"{printable(str(name))}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def complain(error: BaseException, *, as_json: bool) -> None:
    """Print on standard error what went wrong. Only the first line begins at the margin: a line break that came with a
    name cannot make another message."""
    if as_json:
        code = error.wire_code if isinstance(error, EntrepotError) else type(error).__name__
        told = json.dumps({"error": code, "message": sentence(error)}).replace("\x7f", "\\u007f")
        print(told, file=sys.stderr)  # noqa: T201
        return
    first, *more = sentence(error).split("\n")
    print(f"entrepot: {printable(first)}", *(f"  {printable(line)}" for line in more), sep="\n", file=sys.stderr)  # noqa: T201


def say(line: str = "") -> None:
    """Print a line on standard output, at once."""
    print(printable(line), flush=True)  # noqa: T201


def say_file(text: str) -> None:
    """Print a text of several lines, which its reader knows to be one: a config, say."""
    for line in text.rstrip().splitlines():
        print("\t".join(map(printable, line.split("\t"))), flush=True)  # noqa: T201


def tell(found: Any, *, as_json: bool, text: Callable[[], list[str]]) -> None:
    """Print *found* as JSON, or the lines of *text* for people."""
    if as_json:
        print(json_text(found), flush=True)  # noqa: T201
        return
    for line in text():
        say(line)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table with aligned columns."""
    shown = [[printable(cell) for cell in row] for row in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in shown)
    return [line.rstrip() for line in lines]


class _Formatter(logging.Formatter):
    """A record as `complain` prints an error."""

    def format(self, record: logging.LogRecord) -> str:
        first, *more = super().format(record).split("\n")
        return "\n".join([printable(first), *(f"  {printable(line)}" for line in more)])


def print_warnings() -> None:
    """Have what this process logs printed on standard error. A served site's processes take over from that."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Formatter())
    logging.getLogger().addHandler(handler)


def when(at_ns: int) -> str:
    """UTC to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ns // 1_000_000_000))


class Progress(Protocol):
    """Told how much is done, how much there is (0: not known), and of what."""

    def __call__(self, done: int, of: int, what: str = "") -> None: ...


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Progress]:
    """A bar on standard error while long work goes on; nothing where nobody looks."""
    if quiet or not sys.stderr.isatty():
        yield _unseen
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(printable(what), total=None)

        def told(done: int, of: int, what: str = what) -> None:
            bars.update(task, completed=done, total=of or None, description=printable(what))

        yield told


@contextmanager
def steps(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Progress of work that names its steps."""
    with progress("", quiet=quiet) as told:
        yield lambda what, done, of: told(done, of, what)


def _unseen(done: int, of: int, what: str = "") -> None:
    """Nobody looks."""
