"""The rows of the site itself: who may use it, what seals it, names of places and policies, sessions. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class SessionState(IntEnum):
    """LIVE commits; ENDED does not and its unnamed blocks may go; SWEPT was listed once and waits for the last look."""

    LIVE = 0
    ENDED = 1
    SWEPT = 2


class Site(NamedTuple):
    """The site itself; one row, whose `one` is 0."""

    one: int
    id: str
    """32 hex digits, drawn at `init`; stands in every backend's marker."""
    name: str
    incarnation: int
    """Raised when the site is restored, so that no id is drawn twice."""
    feature: int
    """The level that a reader of this journal must know."""
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
    """1: may do everything."""
    buckets: int
    """How many it owns; a user that owns some cannot be removed."""
    access_keys: bytes
    """packed: the list of its access keys."""
    made_ns: int


class AccessKey(NamedTuple):
    access_key: str
    user: str
    user_id: int
    secret: bytes
    """The secret, sealed under a master key."""
    master: str
    """The id of that master key."""
    made_ns: int


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
    """1: its copies are gone for good, somebody said."""


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
    """A process's stay with the committer. Block ids begin with its id."""

    id: int
    kind: str
    """worker, keeper, cli, client."""
    state: int
    opened_ns: int
    ended_ns: int
    """By the site's clock (`site_clock`)."""
    seen: int = 1
    """0: it ended unheard of, after a start that may have been a copy's: its process may belong to the original."""


class Token(NamedTuple):
    """The fencing token of the committer that started last; one row, whose `one` is 0."""

    one: int
    counter: int
    nonce: str
    whereabouts: str
    first_id: int
    """Sessions from this id on were opened since the committers of this journal have had these whereabouts."""
    at_ns: int
    lineage: bytes
    """packed: the latest tokens, oldest first, each (counter, nonce, number of its record); the last one is this."""
    over: bytes
    """packed: nonces of other histories of this site, whose claim on the backends an operator has ended."""


class Slot(NamedTuple):
    """Scratch: the last answer of a session's slot, so that a retried command is not run twice."""

    session: int
    slot: int
    number: int
    answer: bytes


SITE = Table("site", Site)
TENANT = Table("tenant", Tenant)
USER = Table("user", User)
ACCESS_KEY = Table("access_key", AccessKey)
RING_KEY = Table("ring_key", RingKey)
BACKEND = Table("backend", BackendName)
BACKEND_SET = Table("backend_set", BackendSet)
POLICY = Table("policy", PolicyName)
SESSION = Table("session", Session)
TOKEN = Table("token", Token)
SLOT = Table("slot", Slot, 2, truth=False)
