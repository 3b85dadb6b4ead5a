"""Commands on tenants, users and their access keys. Pure: rows in, records out.

Secrets come here sealed; who sends a command has sealed them under a master key.
"""

from __future__ import annotations

from gateway.errors import (
    AccessDenied,
    AccessKeyExists,
    InvalidArgument,
    NoSuchAccessKey,
    NoSuchUser,
    NotEmpty,
    UserExists,
)
from gateway.identity.names import check_access_key, check_user
from gateway.journal.columns import unpack
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.site import (
    AccessKeyDeleted,
    AccessKeyMade,
    AccessKeyResealed,
    TenantMade,
    UserDeleted,
    UserMade,
)
from gateway.journal.tables import ACCESS_KEY, TENANT, USER, Tenant, User

ACCESS_KEYS_MAX = 100
"""Of one user."""


@command(tag=20)
class AddTenant(Command[int]):
    """Make a tenant. Answers its id, also that of one that is there already: `init` may be run again."""

    name: str


@command(tag=21)
class AddUser(Command[int]):
    """Make a user, with a first access key unless *access_key* is empty. Answers its id.

    Raises `UserExists`, `AccessKeyExists`, `InvalidArgument`."""

    name: str
    tenant: str
    root: bool
    access_key: str
    secret: bytes
    master: str


@command(tag=22)
class RemoveUser(Command[None]):
    """The user goes with all its access keys. Raises `NoSuchUser`, `NotEmpty` while it owns buckets, and
    `AccessDenied` for a root user, without whom nobody could act for the others."""

    name: str


@command(tag=23)
class AddAccessKey(Command[None]):
    """Give a user one more access key. Raises `NoSuchUser`, `AccessKeyExists`, `InvalidArgument`."""

    user: str
    access_key: str
    secret: bytes
    master: str


@command(tag=24)
class RemoveAccessKey(Command[None]):
    """Raises `NoSuchAccessKey`, and `AccessDenied` for a root user's last one."""

    access_key: str


@command(tag=25)
class ResealAccessKeys(Command[int]):
    """The same secrets under another master key: items of (access key, secret as it was read, secret, master key).

    One that is gone or changed meanwhile is left alone. Answers how many were changed."""

    items: tuple[tuple[str, bytes, bytes, str], ...]


def add_tenant(asked: AddTenant, tx: Tx) -> int:
    check_user(asked.name)
    found = tx.get(TENANT, (asked.name,))
    if found is not None:
        return found.id
    made = TenantMade(asked.name, tx.new_id())
    tx.emit(made)
    return made.id


def add_user(asked: AddUser, tx: Tx) -> int:
    check_user(asked.name)
    tx.prefetch([(TENANT, (asked.tenant,)), (USER, (asked.name,)), (ACCESS_KEY, (asked.access_key,))])
    if tx.get(USER, (asked.name,)) is not None:
        raise UserExists(asked.name)
    tenant = _tenant(tx, asked.tenant)
    made = UserMade(asked.name, tx.new_id(), tenant.id, int(asked.root), tx.at_ns)
    tx.emit(made)
    if asked.access_key:
        _give_key(tx, asked.name, asked.access_key, asked.secret, asked.master)
    return made.id


def remove_user(asked: RemoveUser, tx: Tx) -> None:
    user = _user(tx, asked.name)
    if user.root:
        raise AccessDenied(f"{asked.name} is the site's root user and stays")
    if user.buckets:
        raise NotEmpty(f"{asked.name} still owns {user.buckets} bucket(s)")
    tx.prefetch([(ACCESS_KEY, (each,)) for each in unpack(user.access_keys)])
    tx.emit(UserDeleted(asked.name))


def add_access_key(asked: AddAccessKey, tx: Tx) -> None:
    user = _user(tx, asked.user)
    if len(unpack(user.access_keys)) >= ACCESS_KEYS_MAX:
        raise InvalidArgument(f"{asked.user} has {ACCESS_KEYS_MAX} access keys, and more are not allowed")
    _give_key(tx, asked.user, asked.access_key, asked.secret, asked.master)


def remove_access_key(asked: RemoveAccessKey, tx: Tx) -> None:
    key = tx.get(ACCESS_KEY, (asked.access_key,))
    if key is None:
        raise NoSuchAccessKey(asked.access_key)
    user = _user(tx, key.user)
    if user.root and len(unpack(user.access_keys)) == 1:
        raise AccessDenied(f"it is the last access key of the root user {user.name}: add another first")
    tx.emit(AccessKeyDeleted(asked.access_key))


def reseal_access_keys(asked: ResealAccessKeys, tx: Tx) -> int:
    tx.prefetch([(ACCESS_KEY, (access_key,)) for access_key, *_ in asked.items])
    changed = 0
    for access_key, before, secret, master in asked.items:
        found = tx.get(ACCESS_KEY, (access_key,))
        if found is not None and found.secret == before:
            tx.emit(AccessKeyResealed(access_key, secret, master))
            changed += 1
    return changed


def _give_key(tx: Tx, user: str, access_key: str, secret: bytes, master: str) -> None:
    check_access_key(access_key)
    if tx.get(ACCESS_KEY, (access_key,)) is not None:
        raise AccessKeyExists(access_key)
    tx.emit(AccessKeyMade(access_key, user, secret, master, tx.at_ns))


def _user(tx: Tx, name: str) -> User:
    user = tx.get(USER, (name,))
    if user is None:
        raise NoSuchUser(name)
    return user


def _tenant(tx: Tx, name: str) -> Tenant:
    tenant = tx.get(TENANT, (name,))
    if tenant is None:
        raise InvalidArgument(f"there is no tenant {name}")
    return tenant
