"""The request that policies are evaluated for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

Values = tuple[str, ...]
"""The values of one condition key. Most keys have one."""


class Context(Protocol):
    """The values of a request's condition keys. They are computed when a condition asks for them."""

    def get(self, key: str, /) -> Values | None:
        """Return the values of *key*, a name in lower case; None if the request has none."""


class ChainedContext:
    """The values of one context and, for keys that it does not have, those of another one. Implements `Context`."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Context, second: Context | None) -> None:
        self._first = first
        self._second = second

    def get(self, key: str, /) -> Values | None:
        """Return the values of *key*."""
        found = self._first.get(key)
        return found if found is not None or self._second is None else self._second.get(key)


class AccessRequest(NamedTuple):
    """Who wants to do what to which resource."""

    user_id: int
    """The id of the authenticated user; 0 if the request is anonymous."""
    action: str
    """Such as `s3:GetObject`."""
    resource: str
    """The ARN, such as `arn:aws:s3:::bucket/key`."""
    context: Context
    tags: Callable[[], Mapping[str, str]] | None = None
    """Returns the tags of the existing object, for `s3:ExistingObjectTag/…`; None if the action has no object. It is
    called only if a condition asks for it."""

    def values(self, key: str) -> Values | None:
        """Return the values of the condition key *key* (in lower case, except a tag's name); None if there are none."""
        if key.startswith(EXISTING_TAG):
            tag = self.tags().get(key[len(EXISTING_TAG) :]) if self.tags is not None else None
            return None if tag is None else (tag,)
        return self.context.get(key)

    def value(self, key: str) -> str | None:
        """Return the value of a key for a policy variable; None unless it has exactly one."""
        values = self.values(key)
        return values[0] if values is not None and len(values) == 1 else None


EXISTING_TAG = "s3:existingobjecttag/"
REQUEST_TAG = "s3:requestobjecttag/"
