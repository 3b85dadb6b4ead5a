"""The rows of the site itself: users, keys, interned names of backends and policies, sessions, the token. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class SessionState(IntEnum):
    """LIVE: it may commit. ENDED: it may not, and blocks that no run names may be deleted. SWEPT: its blocks were
    listed once and the unnamed ones deleted; they are listed a last time later."""

    LIVE = 0
    ENDED = 1
    SWEPT = 2


class SiteRow(NamedTuple):
    """The site itself; one row, whose `one` is 0."""

    one: int
    id: str
    """32 hex digits, drawn at `init`; contained in the marker of every backend."""
    name: str
    incarnation: int
    """Raised when the site is restored, so that no id is drawn twice."""
    feature: int
    """The feature level that a reader of this journal must know."""
    made_ns: int


class Tenant(NamedTuple):
    name: str
    id: int
    ring_key: int
    """The ring key that seals what this tenant writes now."""


class User(NamedTuple):
    name: str
    id: int
    tenant: int
    root: int
    """1: the user may do everything."""
    buckets: int
    """How many buckets the user owns. A user that owns buckets cannot be removed."""
    access_keys: bytes
    """packed: the list of its access keys."""
    made_ns: int
    disabled: int = 0
    """1: its access keys are not accepted."""


class AccessKey(NamedTuple):
    access_key: str
    user: str
    user_id: int
    secret: bytes
    """The secret, sealed under a master key."""
    master: str
    """The id of that master key."""
    made_ns: int
    expires_ns: int = 0
    """From this time on the key is not accepted, by the wall clock; 0: it does not expire."""


class RingKey(NamedTuple):
    id: int
    tenant: int
    wrapped: bytes
    master: str
    made_ns: int


class BackendName(NamedTuple):
    """A backend's interned name."""

    name: str
    id: int
    lost: int = 0
    """1: an operator has declared that its copies are lost permanently."""


class BackendSet(NamedTuple):
    """An interned set of backends."""

    members: bytes
    """packed: ascending list of backend ids."""
    id: int


class PolicyName(NamedTuple):
    """A placement policy's interned name."""

    name: str
    id: int


class Session(NamedTuple):
    """A process's lease with the committer. The ids of the blocks that the process writes begin with the session's
    id."""

    id: int
    kind: str
    """worker, keeper, cli, client."""
    state: int
    opened_ns: int
    ended_ns: int
    """By the site's clock (`site_clock`)."""
    seen: int = 1
    """0: its process did not reconnect after a start of the committer that may have been that of a copy. So its process
    may belong to the original."""


class Token(NamedTuple):
    """The fencing token of the committer that started last; one row, whose `one` is 0."""

    one: int
    counter: int
    nonce: str
    whereabouts: str
    first_id: int
    """Sessions with this id or a higher one were opened under the same whereabouts."""
    at_ns: int
    lineage: bytes
    """packed: the latest tokens, oldest first, each (counter, nonce, number of its record). The last one is this
    token."""
    over: bytes
    """packed: nonces of tokens of other histories of this site, whose claim on the backends an operator has ended."""


class Slot(NamedTuple):
    """Scratch: the last answer of a session's slot, so that a command that is sent again is not run again."""

    session: int
    slot: int
    number: int
    answer: bytes


SITE = Table("site", SiteRow)
TENANT = Table("tenant", Tenant, catalog=True)
USER = Table("user", User, catalog=True)
ACCESS_KEY = Table("access_key", AccessKey, catalog=True)
RING_KEY = Table("ring_key", RingKey, catalog=True)
BACKEND = Table("backend", BackendName)
BACKEND_SET = Table("backend_set", BackendSet)
POLICY = Table("policy", PolicyName)
SESSION = Table("session", Session)
TOKEN = Table("token", Token)
SLOT = Table("slot", Slot, 2, truth=False)
