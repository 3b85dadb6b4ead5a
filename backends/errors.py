"""The errors that backends raise, as one hierarchy. They know neither errno nor HTTP: each driver translates.

    BackendError
    ├── NotFound            no value is stored under the key
    ├── Corrupted           a value is short, or differs from its checksum
    ├── Full                no space is left
    ├── ReadOnly            the storage accepts no writes
    ├── Denied              this site lacks a permission
    ├── OwnedByAnotherSite  the marker names another site, or a later incarnation of this one
    ├── Unavailable         a retry may succeed: timeouts, I/O errors, throttling, a lost connection
    └── Misconfigured       no retry succeeds until somebody changes something: a wrong path, a missing bucket

An error keeps its source as `__cause__`. A malformed key or range is a mistake of the caller: a plain `ValueError`.
"""

from __future__ import annotations


class BackendError(Exception):
    """The root of the hierarchy.

    `backend` is the backend's name, `key` the value's key (None where the error is about no value). `retry_after_s` is
    the number of seconds that the server asked to wait; None where it did not ask.
    """

    outcome = "error"  # the label of this error in metrics; a stable name, whatever the class is called

    def __init__(self, message: str, *, backend: str = "", key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.backend = backend
        self.key = key
        self.retry_after_s: float | None = None

    def __str__(self) -> str:
        backend = f"backend {self.backend!r}: " if self.backend else ""
        key = f" (key {self.key})" if self.key is not None else ""
        return f"{backend}{self.message}{key}"


class NotFound(BackendError):
    """No value is stored under the key."""

    outcome = "not_found"


class Corrupted(BackendError):
    """Bytes are missing or differ from their checksum."""

    outcome = "damaged"


class Full(BackendError):
    """No space is left; deletes still work."""

    outcome = "full"


class ReadOnly(BackendError):
    """The storage accepts no writes; reads still work."""

    outcome = "read_only"


class Denied(BackendError):
    """This site lacks a permission."""

    outcome = "denied"


class OwnedByAnotherSite(BackendError):
    """The backend belongs to another site, or to a later incarnation of this one."""

    outcome = "foreign"


class Unavailable(BackendError):
    """A transient failure: the same call may succeed later."""

    outcome = "unavailable"


class Misconfigured(BackendError):
    """A permanent failure, until somebody changes the configuration or the storage."""

    outcome = "misconfigured"


def notes_suffix(error: BaseException) -> str:
    """Return the notes (PEP 678) of *error* and of its cause, as a suffix for a message.

    The `TimeoutError` of `asyncio.timeout` replaces a `CancelledError`, which has the notes. It names that error as its
    cause, or, before Python 3.11.3, as its context only."""
    cause = error.__cause__ or error.__context__
    notes = [*getattr(error, "__notes__", ()), *getattr(cause, "__notes__", ())]
    return "".join(f"; {note}" for note in notes)
