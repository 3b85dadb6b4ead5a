"""The journal's own commands: founding a site, restoring it, sessions, fencing tokens. Tags 1 to 19."""

from __future__ import annotations

from gateway.errors import Refused
from gateway.journal.commands import Command, Handler, Tx, command
from gateway.journal.records import FEATURE_LEVEL
from gateway.journal.records.site import (
    ChainBegun,
    FeatureRaised,
    IncarnationStarted,
    SessionEnded,
    SessionOpened,
    SiteFounded,
    TokenDrawn,
)
from gateway.journal.tables import SESSION, SITE, TOKEN, SessionState

CHAIN_FEATURE = 6
COUNTER_BITS = 48
"""An id consists of its journal's incarnation and, in its lowest bits, a counter of this many bits."""
INCARNATION_MAX = (1 << 63 - COUNTER_BITS) - 1
"""Ids have 63 bits."""
TOKEN_FEATURE = 5
"""The feature level that fencing tokens need."""
SKIP_MAX = 1 << 32
SKIP_SHARE = 1 << 17
"""A start of a committer skips a random number of ids: fewer than `SKIP_MAX`, and at most one in `SKIP_SHARE` of those
that are left."""


@command(tag=1)
class FoundSite(Command[str]):
    """Make the site's row. Returns the site's id, also if the row exists already, since `init` may be run again."""

    id: str
    name: str
    feature: int = 1


@command(tag=2)
class StartIncarnation(Command[int]):
    """Begin a new incarnation after a restore, so that no id is drawn that was drawn after the backup was made. Returns
    the new incarnation, which is above *above*."""

    above: int = 0


@command(tag=3)
class RaiseFeature(Command[None]):
    level: int


@command(tag=4, frees=True)
class OpenSession(Command[int]):
    """Open a session and return its id. Accepted on a full disk too, since a client that deletes needs a session."""

    kind: str


@command(tag=5, frees=True)
class EndSession(Command[None]):
    """End a session, if it has not ended yet. *seen*: as of `SessionEnded`."""

    session: int
    seen: bool = True


@command(tag=6, frees=True)
class DrawToken(Command[int]):
    """Draw the fencing token of a committer that starts. Returns the token's counter, which is above *above* and above
    every counter of this history.

    Two copies of a journal that are both used must not draw the same ids, or one would regard the other's sessions and
    blocks as its own. Therefore *skip* ids are skipped, modulo a bound that depends on how many are left."""

    nonce: str
    skip: int
    """Drawn at random from 0 to 2**63 - 1."""
    whereabouts: str
    above: int = 0
    over: tuple[str, ...] = ()
    """As of `TokenDrawn`."""


@command(tag=19)
class BeginChain(Command[None]):
    """Begin a new chain of hashes. The first command after a restore from the tables alone. Not in `COMMANDS`, so no
    client can send it."""


def found_site(command: FoundSite, tx: Tx) -> str:
    site = tx.get(SITE, (0,))
    if site is not None:
        return site.id
    tx.emit(SiteFounded(command.id, command.name, 1, command.feature, tx.at_ns))
    tx.skip_ids_to(1 << COUNTER_BITS | 1)
    return command.id


def start_incarnation(command: StartIncarnation, tx: Tx) -> int:
    site = tx.get(SITE, (0,))
    if site is None:
        raise Refused("there is no site to restore")
    incarnation = max(site.incarnation, command.above) + 1
    if incarnation > INCARNATION_MAX:
        raise Refused(f"incarnation {incarnation} has no ids left: they end with incarnation {INCARNATION_MAX}")
    tx.emit(IncarnationStarted(incarnation))
    tx.skip_ids_to(incarnation << COUNTER_BITS | 1)
    return incarnation


def begin_chain(command: BeginChain, tx: Tx) -> None:
    tx.emit(ChainBegun(tx.number - 1))
    tx.need_feature(CHAIN_FEATURE)


def raise_feature(command: RaiseFeature, tx: Tx) -> None:
    site = tx.get(SITE, (0,))
    if site is None or not site.feature < command.level <= FEATURE_LEVEL:
        raise Refused(f"the journal's feature level cannot become {command.level}")
    tx.emit(FeatureRaised(command.level))


def open_session(command: OpenSession, tx: Tx) -> int:
    session = tx.new_id()
    tx.emit(SessionOpened(session, command.kind, tx.at_ns))
    return session


def end_session(command: EndSession, tx: Tx) -> None:
    session = tx.get(SESSION, (command.session,))
    if session is not None and session.state == SessionState.LIVE:
        tx.need_feature(TOKEN_FEATURE)
        tx.emit(SessionEnded(command.session, tx.site_ns, command.seen))


def draw_token(command: DrawToken, tx: Tx) -> int:
    if tx.get(SITE, (0,)) is None:
        raise Refused("there is no site to commit to")
    before = tx.get(TOKEN, (0,))
    same_whereabouts = before is not None and before.whereabouts == command.whereabouts != ""
    first_id = before.first_id if before is not None and same_whereabouts else tx.next_id
    counter = max(0 if before is None else before.counter, command.above) + 1
    tx.need_feature(TOKEN_FEATURE)
    tx.emit(TokenDrawn(counter, command.nonce, command.whereabouts, first_id, tx.at_ns, command.over))
    left = ((tx.next_id >> COUNTER_BITS) + 1 << COUNTER_BITS) - tx.next_id
    tx.skip_ids_to(tx.next_id + command.skip % max(1, min(SKIP_MAX, left // SKIP_SHARE)))
    return counter


COMMANDS: dict[type, Handler] = {
    FoundSite: found_site,
    StartIncarnation: start_incarnation,
    RaiseFeature: raise_feature,
    OpenSession: open_session,
    EndSession: end_session,
    DrawToken: draw_token,
}
