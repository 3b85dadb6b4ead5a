"""What the commands say: tables and sentences for people, JSON for programs, errors on standard error."""

from __future__ import annotations

import json
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
    SessionOver,
    UserExists,
)

_SENTENCES: dict[type[EntrepotError], str] = {
    NoSuchUser: "there is no user {}",
    NoSuchAccessKey: "there is no access key {}",
    NoSuchBucket: "there is no bucket {}",
    UserExists: "there is a user {} already",
    AccessKeyExists: "the access key {} is taken",
    BucketNotEmpty: "the bucket {} is not empty",
    SessionOver: "the session {} with the committer has ended: try again",
}


def sentence(error: BaseException) -> str:
    """What went wrong, for people."""
    form = _SENTENCES.get(type(error)) if isinstance(error, EntrepotError) else None
    if form is not None:
        return form.format(*error.args)
    if isinstance(error, TyperException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def complain(error: BaseException, *, as_json: bool) -> None:
    """Say on standard error what went wrong."""
    if as_json:
        print(json.dumps({"error": type(error).__name__, "message": sentence(error)}), file=sys.stderr)  # noqa: T201
    else:
        print(f"entrepot: {sentence(error)}", file=sys.stderr)  # noqa: T201


def say(text: str = "") -> None:
    """A line on standard output, at once."""
    print(text, flush=True)  # noqa: T201


def tell(found: Any, *, as_json: bool, text: Callable[[], str]) -> None:
    """*found* as JSON, or *text* for people."""
    say(json.dumps(found, indent=2) if as_json else text())


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, aligned."""
    widths = [max(len(each) for each in column) for column in zip(titles, *rows, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in (titles, *rows))
    return "\n".join(line.rstrip() for line in lines)


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

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)

        def told(done: int, of: int, what: str = what) -> None:
            bars.update(task, completed=done, total=of or None, description=what)

        yield told


@contextmanager
def steps(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Progress of work that names its steps."""
    with progress("", quiet=quiet) as told:
        yield lambda what, done, of: told(done, of, what)


def _unseen(done: int, of: int, what: str = "") -> None:
    """Nobody looks."""
