"""What the records of the site, its users and keys, its sessions and its interned names do. Pure."""

from __future__ import annotations

from typing import assert_never

from gateway.journal.columns import pack, unpack
from gateway.journal.records.site import (
    AccessKeyDeleted,
    AccessKeyMade,
    AccessKeyResealed,
    BackendNamed,
    BackendSetNamed,
    ChainBegun,
    FeatureRaised,
    IncarnationStarted,
    PolicyNamed,
    RingKeyMade,
    RingKeyRewrapped,
    SessionEnded,
    SessionForgotten,
    SessionOpened,
    SessionSwept,
    SiteFounded,
    SiteRecord,
    TenantMade,
    TokenDrawn,
    UserDeleted,
    UserDisabledSet,
    UserMade,
)
from gateway.journal.rows import Rows, require
from gateway.journal.tables import (
    ACCESS_KEY,
    BACKEND,
    BACKEND_SET,
    POLICY,
    RING_KEY,
    SESSION,
    SITE,
    TENANT,
    TOKEN,
    USER,
    AccessKey,
    BackendName,
    BackendSet,
    PolicyName,
    RingKey,
    Session,
    SessionState,
    SiteRow,
    Tenant,
    Token,
    User,
)

LINEAGE_MAX = 16
"""How many tokens the row of the last one lists."""
OVER_MAX = 64
"""How many ended claims it lists."""


def apply_site(record: SiteRecord, rows: Rows, number: int) -> None:
    match record:
        case SessionOpened():
            _session_opened(record, rows)
        case SessionEnded():
            _session_ended(record, rows)
        case SessionSwept():
            _session_swept(record, rows)
        case SessionForgotten():
            _session_forgotten(record, rows)
        case BackendNamed():
            _backend_named(record, rows)
        case BackendSetNamed():
            _backend_set_named(record, rows)
        case PolicyNamed():
            _policy_named(record, rows)
        case TenantMade():
            _tenant_made(record, rows)
        case UserMade():
            _user_made(record, rows)
        case UserDeleted():
            _user_deleted(record, rows)
        case UserDisabledSet():
            user = require(rows, USER, (record.name,))
            rows.put(USER, user._replace(disabled=record.disabled))
        case AccessKeyMade():
            _access_key_made(record, rows)
        case AccessKeyDeleted():
            _access_key_deleted(record, rows)
        case AccessKeyResealed():
            _access_key_resealed(record, rows)
        case RingKeyMade():
            _ring_key_made(record, rows)
        case RingKeyRewrapped():
            _ring_key_rewrapped(record, rows)
        case SiteFounded():
            _site_founded(record, rows)
        case IncarnationStarted():
            _incarnation_started(record, rows)
        case FeatureRaised():
            _feature_raised(record, rows)
        case TokenDrawn():
            _token_drawn(record, rows, number)
        case ChainBegun():
            pass  # the tables have been restored already
        case _:
            assert_never(record)


def _site_founded(record: SiteFounded, rows: Rows) -> None:
    rows.put(SITE, SiteRow(0, record.id, record.name, record.incarnation, record.feature, record.at_ns))


def _incarnation_started(record: IncarnationStarted, rows: Rows) -> None:
    rows.put(SITE, require(rows, SITE, (0,))._replace(incarnation=record.incarnation))


def _feature_raised(record: FeatureRaised, rows: Rows) -> None:
    rows.put(SITE, require(rows, SITE, (0,))._replace(feature=record.level))


def _token_drawn(record: TokenDrawn, rows: Rows, number: int) -> None:
    before = rows.get(TOKEN, (0,))
    lineage = [] if before is None else unpack(before.lineage)
    over = [] if before is None else unpack(before.over)
    lineage = [*lineage, (record.counter, record.nonce, number)][-LINEAGE_MAX:]
    over = [*over, *record.over][-OVER_MAX:]
    rows.put(
        TOKEN,
        Token(
            0, record.counter, record.nonce, record.whereabouts, record.first_id, record.at_ns,
            pack(lineage), pack(over),
        ),
    )  # fmt: skip


def _tenant_made(record: TenantMade, rows: Rows) -> None:
    rows.put(TENANT, Tenant(record.name, record.id, 0))


def _user_made(record: UserMade, rows: Rows) -> None:
    rows.put(USER, User(record.name, record.id, record.tenant, record.root, 0, pack([]), record.at_ns))


def _user_deleted(record: UserDeleted, rows: Rows) -> None:
    user = require(rows, USER, (record.name,))
    for access_key in unpack(user.access_keys):
        rows.drop(ACCESS_KEY, (access_key,))
    rows.drop(USER, (record.name,))


def _access_key_made(record: AccessKeyMade, rows: Rows) -> None:
    user = require(rows, USER, (record.user,))
    rows.put(USER, user._replace(access_keys=pack([*unpack(user.access_keys), record.access_key])))
    rows.put(
        ACCESS_KEY,
        AccessKey(
            record.access_key, record.user, user.id, record.secret, record.master, record.at_ns, record.expires_ns
        ),
    )


def _access_key_deleted(record: AccessKeyDeleted, rows: Rows) -> None:
    user = require(rows, USER, (require(rows, ACCESS_KEY, (record.access_key,)).user,))
    kept = [each for each in unpack(user.access_keys) if each != record.access_key]
    rows.put(USER, user._replace(access_keys=pack(kept)))
    rows.drop(ACCESS_KEY, (record.access_key,))


def _access_key_resealed(record: AccessKeyResealed, rows: Rows) -> None:
    row = require(rows, ACCESS_KEY, (record.access_key,))
    rows.put(ACCESS_KEY, row._replace(secret=record.secret, master=record.master))


def _ring_key_made(record: RingKeyMade, rows: Rows) -> None:
    tenant = require(rows, TENANT, (record.tenant,))
    rows.put(RING_KEY, RingKey(record.id, tenant.id, record.wrapped, record.master, record.at_ns))
    rows.put(TENANT, tenant._replace(ring_key=record.id))


def _ring_key_rewrapped(record: RingKeyRewrapped, rows: Rows) -> None:
    row = require(rows, RING_KEY, (record.id,))
    rows.put(RING_KEY, row._replace(wrapped=record.wrapped, master=record.master))


def _session_opened(record: SessionOpened, rows: Rows) -> None:
    rows.put(SESSION, Session(record.id, record.kind, SessionState.LIVE, record.at_ns, 0))


def _session_ended(record: SessionEnded, rows: Rows) -> None:
    row = require(rows, SESSION, (record.id,))
    rows.put(SESSION, row._replace(state=int(SessionState.ENDED), ended_ns=record.at_ns, seen=int(record.seen)))


def _session_swept(record: SessionSwept, rows: Rows) -> None:
    rows.put(SESSION, require(rows, SESSION, (record.id,))._replace(state=int(SessionState.SWEPT)))


def _session_forgotten(record: SessionForgotten, rows: Rows) -> None:
    rows.drop(SESSION, (record.id,))


def _backend_named(record: BackendNamed, rows: Rows) -> None:
    rows.put(BACKEND, BackendName(record.name, record.id, 0))


def _backend_set_named(record: BackendSetNamed, rows: Rows) -> None:
    rows.put(BACKEND_SET, BackendSet(pack(list(record.members)), record.id))


def _policy_named(record: PolicyNamed, rows: Rows) -> None:
    rows.put(POLICY, PolicyName(record.name, record.id))
