"""The journal's own commands: founding, restoring, sessions. Tags 1 to 19."""

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
"""An id is its journal's incarnation above a counter of so many bits."""
INCARNATION_MAX = (1 << 63 - COUNTER_BITS) - 1
"""Ids have 63 bits."""
TOKEN_FEATURE = 5
"""The journal's level that fencing tokens need."""
SKIP_MAX = 1 << 32
SKIP_SHARE = 1 << 17
"""How many ids a start passes over: at random, fewer than `SKIP_MAX` and than this share of those that are left."""


@command(tag=1)
class FoundSite(Command[str]):
    """Make the site's own row. Answers its id, also where it is there already: `init` may be run again."""

    id: str
    name: str
    feature: int = 1


@command(tag=2)
class StartIncarnation(Command[int]):
    """After a restore: draw no id that the lost future drew. Answers the new incarnation, which is above *above*."""

    above: int = 0


@command(tag=3)
class RaiseFeature(Command[None]):
    level: int


@command(tag=4, frees=True)
class OpenSession(Command[int]):
    """Answers the session's id. Taken on a full disk too: who wants to delete needs a session."""

    kind: str


@command(tag=5, frees=True)
class EndSession(Command[None]):
    """Answers nothing; a session that has ended already stays so. *seen*: as of `SessionEnded`."""

    session: int
    seen: bool = True


@command(tag=6, frees=True)
class DrawToken(Command[int]):
    """A committer's, at its start: its fencing token. Answers the token's counter, which is above *above* and above
    every one of this history.

    Two copies of a journal that both go on must not draw the same ids, or one would take the other's sessions and
    blocks for its own: so ids are passed over, *skip* of them, reduced to what is left."""

    nonce: str
    skip: int
    """Drawn at random from 0 to 2**63 - 1."""
    whereabouts: str
    above: int = 0
    over: tuple[str, ...] = ()
    """As of `TokenDrawn`."""


@command(tag=19)
class BeginChain(Command[None]):
    """The first command after a restore from the tables alone: begin the chain of hashes anew. Not in `COMMANDS`."""


def found_site(asked: FoundSite, tx: Tx) -> str:
    site = tx.get(SITE, (0,))
    if site is not None:
        return site.id
    tx.emit(SiteFounded(asked.id, asked.name, 1, asked.feature, tx.at_ns))
    tx.skip_ids_to(1 << COUNTER_BITS | 1)
    return asked.id


def start_incarnation(asked: StartIncarnation, tx: Tx) -> int:
    site = tx.get(SITE, (0,))
    if site is None:
        raise Refused("there is no site to restore")
    incarnation = max(site.incarnation, asked.above) + 1
    if incarnation > INCARNATION_MAX:
        raise Refused(f"incarnation {incarnation} has no ids left: they end with incarnation {INCARNATION_MAX}")
    tx.emit(IncarnationStarted(incarnation))
    tx.skip_ids_to(incarnation << COUNTER_BITS | 1)
    return incarnation


def begin_chain(asked: BeginChain, tx: Tx) -> None:
    tx.emit(ChainBegun(tx.number - 1))
    tx.need_feature(CHAIN_FEATURE)


def raise_feature(asked: RaiseFeature, tx: Tx) -> None:
    site = tx.get(SITE, (0,))
    if site is None or not site.feature < asked.level <= FEATURE_LEVEL:
        raise Refused(f"the journal's feature level cannot become {asked.level}")
    tx.emit(FeatureRaised(asked.level))


def open_session(asked: OpenSession, tx: Tx) -> int:
    drawn = tx.new_id()
    tx.emit(SessionOpened(drawn, asked.kind, tx.at_ns))
    return drawn


def end_session(asked: EndSession, tx: Tx) -> None:
    session = tx.get(SESSION, (asked.session,))
    if session is not None and session.state == SessionState.LIVE:
        tx.need_feature(TOKEN_FEATURE)
        tx.emit(SessionEnded(asked.session, tx.site_ns, asked.seen))


def draw_token(asked: DrawToken, tx: Tx) -> int:
    if tx.get(SITE, (0,)) is None:
        raise Refused("there is no site to commit to")
    before = tx.get(TOKEN, (0,))
    stays = before is not None and before.whereabouts == asked.whereabouts != ""
    first_id = before.first_id if before is not None and stays else tx.next_id
    counter = max(0 if before is None else before.counter, asked.above) + 1
    tx.need_feature(TOKEN_FEATURE)
    tx.emit(TokenDrawn(counter, asked.nonce, asked.whereabouts, first_id, tx.at_ns, asked.over))
    left = ((tx.next_id >> COUNTER_BITS) + 1 << COUNTER_BITS) - tx.next_id
    tx.skip_ids_to(tx.next_id + asked.skip % max(1, min(SKIP_MAX, left // SKIP_SHARE)))
    return counter


COMMANDS: dict[type, Handler] = {
    FoundSite: found_site,
    StartIncarnation: start_incarnation,
    RaiseFeature: raise_feature,
    OpenSession: open_session,
    EndSession: end_session,
    DrawToken: draw_token,
}
