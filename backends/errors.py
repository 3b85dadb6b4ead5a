"""Every error that a backend raises, as one small tree. No errno and no HTTP status in it: each driver translates.

    BackendError
    ├── NotFound        no value under that key
    ├── Damaged         what came back, or was handed in, is not what it should be: short, or its checksum differs
    ├── Full            no room left
    ├── ReadOnly        the medium takes no writes
    ├── Denied          we lack the permission
    ├── Foreign         the place bears the marker of another site, or of a later incarnation of this one
    ├── Unavailable     may work if tried again: timeouts, I/O errors, throttling, a lost connection
    └── Misconfigured   will not work however often it is tried: a wrong path, a file where a folder should be

An error keeps its source as `__cause__`. A malformed key or range is a caller's mistake: a plain `ValueError`.
"""

from __future__ import annotations


class BackendError(Exception):
    """The root of the tree. `backend` names the place, `key` the value, where there is one; `retry_after_s` is how long
    the place asked to be left alone, where it did."""

    word = "error"  # how metrics spell the outcome

    def __init__(self, message: str, *, backend: str = "", key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.backend = backend
        self.key = key
        self.retry_after_s: float | None = None

    def __str__(self) -> str:
        where = f"backend {self.backend!r}: " if self.backend else ""
        what = f" (key {self.key})" if self.key is not None else ""
        return f"{where}{self.message}{what}"


class NotFound(BackendError):
    """No value under that key."""

    word = "not_found"


class Corrupted(BackendError):
    """Bytes are missing or differ from their checksum."""

    word = "damaged"


class Full(BackendError):
    """No room left; deletes still work."""

    word = "full"


class ReadOnly(BackendError):
    """The medium takes no writes; reads still work."""

    word = "read_only"


class Denied(BackendError):
    """We lack the permission."""

    word = "denied"


class OwnedByAnotherSite(BackendError):
    """The place belongs to another site, or to a later incarnation of this one."""

    word = "foreign"


class Unavailable(BackendError):
    """Transient: the same call may succeed later."""

    word = "unavailable"


class Misconfigured(BackendError):
    """Permanent until somebody changes the configuration or the place."""

    word = "misconfigured"


def remarks(error: BaseException) -> str:
    """Return the notes (PEP 678) of *error* and of its cause, as a suffix for a message.

    The `TimeoutError` of `asyncio.timeout` replaces a `CancelledError`, which has the notes. It names that error as its
    cause, or, before Python 3.11.3, as its context only."""
    cause = error.__cause__ or error.__context__
    notes = [*getattr(error, "__notes__", ()), *getattr(cause, "__notes__", ())]
    return "".join(f"; {note}" for note in notes)
