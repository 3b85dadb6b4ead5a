"""The records of the site: its founding, users and keys, sessions, and names that have ids."""

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
    """The site was restored from a backup. From here on, ids are drawn from the range of the new incarnation."""

    incarnation: int


@record(tag=3)
class FeatureRaised:
    level: int


@record(tag=4, feature=5)
class TokenDrawn:
    """A committer has started with this fencing token. Older tokens of this history are void."""

    counter: int
    nonce: str
    """Hex, drawn at random."""
    whereabouts: str
    """As of `gateway.journal.whereabouts`; empty: unknown."""
    first_id: int
    """Sessions with this id or a higher one were opened under the same whereabouts."""
    at_ns: int
    over: tuple[str, ...] = ()
    """Nonces of tokens of another history of this site, whose claim on the backends an operator has ended."""


@record(tag=8, feature=6)
class ChainBegun:
    """The first record of a journal whose tables were restored without the records that made them. The tables were at
    record *number* then. After it a new chain of hashes begins, from zeros. Changes no table."""

    number: int


# --- users
# --------------------------------------------------------------------------------------------------------------


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
    """A user and all its access keys were deleted."""

    name: str


@record(tag=110, feature=12)
class UserDisabledSet:
    """A user was disabled (1): its access keys are not accepted. Or it was enabled again (0)."""

    name: str
    disabled: int


@record(tag=13)
class AccessKeyMade:
    access_key: str
    user: str
    secret: bytes
    master: str
    at_ns: int
    expires_ns: int = 0
    """By the wall clock; 0: never. Another value needs feature level 12."""


@record(tag=14)
class AccessKeyDeleted:
    access_key: str


@record(tag=15)
class AccessKeyResealed:
    """The same secret was sealed under another master key, or the secret was replaced."""

    access_key: str
    secret: bytes
    master: str


@record(tag=16)
class RingKeyMade:
    """A ring key was made. What its tenant (a name) writes from now on is sealed with it."""

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
    """A session has ended. From here on its commits are refused, and its blocks that no run names may be deleted. If
    the session was *seen*, that is, if its process is known to belong to this history, they may be deleted at once.
    Otherwise they are kept for the grace period, since another copy of this journal may go on with that session."""

    id: int
    at_ns: int
    seen: bool = True


@record(tag=22)
class SessionSwept:
    """The blocks of an ended session were listed once, and the unnamed ones were deleted."""

    id: int


@record(tag=23)
class SessionForgotten:
    """The blocks of an ended session were listed a last time, after the longest deadline of a put."""

    id: int


# --- interned names of the config -----------------------------------------------------------------------------------


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
    | TenantMade | UserMade | UserDeleted | UserDisabledSet | AccessKeyMade | AccessKeyDeleted | AccessKeyResealed
    | RingKeyMade | RingKeyRewrapped
    | SessionOpened | SessionEnded | SessionSwept | SessionForgotten
    | BackendNamed | BackendSetNamed | PolicyNamed
)  # fmt: skip
