"""The records of the site: how it was founded, who uses it, sessions with its committer, and names that have ids."""

from __future__ import annotations

from gateway.journal.records.base import record

# --- the site ---------------------------------------------------------------------------------------------------------


@record(tag=1)
class SiteFounded:
    id: str
    name: str
    incarnation: int
    feature: int
    at_ns: int


@record(tag=2)
class IncarnationStarted:
    """The site was restored from a backup; ids are drawn above the new incarnation from here on."""

    incarnation: int


@record(tag=3)
class FeatureRaised:
    level: int


@record(tag=4, feature=5)
class TokenDrawn:
    """A committer has started, and bears this fencing token from here on; older tokens of this history are void."""

    counter: int
    nonce: str
    """Hex, drawn at random."""
    whereabouts: str
    """As `gateway.journal.whereabouts`; empty where unknown."""
    first_id: int
    """Sessions from this id on were opened since the committers of this journal have had these whereabouts."""
    at_ns: int
    over: tuple[str, ...] = ()
    """Nonces of another history of this site, whose claim on the backends an operator has ended."""


@record(tag=8, feature=6)
class ChainBegun:
    """The first record of a journal whose tables were restored without the records that made them. The tables were as
    they are since record *number*; behind it the chain of hashes begins anew, from zeros. Changes no table."""

    number: int


# --- who --------------------------------------------------------------------------------------------------------------


@record(tag=10)
class TenantMade:
    name: str
    id: int


@record(tag=11)
class UserMade:
    name: str
    id: int
    tenant: int
    root: int
    at_ns: int


@record(tag=12)
class UserDeleted:
    """The user and all its access keys."""

    name: str


@record(tag=13)
class AccessKeyMade:
    access_key: str
    user: str
    secret: bytes
    master: str
    at_ns: int


@record(tag=14)
class AccessKeyDeleted:
    access_key: str


@record(tag=15)
class AccessKeyResealed:
    """The same secret under another master key, or another secret."""

    access_key: str
    secret: bytes
    master: str


@record(tag=16)
class RingKeyMade:
    """A new ring key; what its tenant (by name) writes from now on is sealed with it."""

    id: int
    tenant: str
    wrapped: bytes
    master: str
    at_ns: int


@record(tag=17)
class RingKeyRewrapped:
    id: int
    wrapped: bytes
    master: str


# --- sessions ---------------------------------------------------------------------------------------------------------


@record(tag=20)
class SessionOpened:
    id: int
    kind: str
    at_ns: int


@record(tag=21)
class SessionEnded:
    """From here on its commits are refused, and its blocks that no run names may go: at once if it was *seen*, that
    is, if its process is known to belong to this history; otherwise once the grace has passed in which another copy of
    this journal may turn out to go on with that session."""

    id: int
    at_ns: int
    seen: bool = True


@record(tag=22)
class SessionSwept:
    """Its blocks were listed once and the unnamed ones deleted."""

    id: int


@record(tag=23)
class SessionForgotten:
    """Its blocks were listed a last time, after the longest deadline of an upload."""

    id: int


# --- names of what the config names -----------------------------------------------------------------------------------


@record(tag=30)
class BackendNamed:
    name: str
    id: int


@record(tag=31)
class BackendSetNamed:
    members: tuple[int, ...]
    id: int


@record(tag=32)
class PolicyNamed:
    name: str
    id: int


SiteRecord = (
    SiteFounded | IncarnationStarted | FeatureRaised | TokenDrawn | ChainBegun
    | TenantMade | UserMade | UserDeleted | AccessKeyMade | AccessKeyDeleted | AccessKeyResealed
    | RingKeyMade | RingKeyRewrapped
    | SessionOpened | SessionEnded | SessionSwept | SessionForgotten
    | BackendNamed | BackendSetNamed | PolicyNamed
)  # fmt: skip
