"""Commands on tenants, users and their access keys. Pure: rows in, records out.

Secrets are sealed: the sender of a command has sealed them under a master key.
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
    UserDisabledSet,
    UserMade,
)
from gateway.journal.tables import ACCESS_KEY, TENANT, USER, Tenant, User

ACCESS_KEYS_MAX = 100
"""The maximum number of access keys of one user."""
USER_STATES_FEATURE = 12
"""The journal's feature level that is needed to disable users, and for access keys that expire."""


@command(tag=20)
class AddTenant(Command[int]):
    """Create a tenant. Returns its id, also if the tenant exists already: `init` may be run again."""

    name: str


@command(tag=21)
class AddUser(Command[int]):
    """Create a user, with an access key unless *access_key* is empty. Returns its id.

    Raises `UserExists`, `AccessKeyExists`, `InvalidArgument`."""

    name: str
    tenant: str
    root: bool
    access_key: str
    secret: bytes
    master: str


@command(tag=22)
class RemoveUser(Command[None]):
    """Remove a user and all its access keys. Raises `NoSuchUser`, `NotEmpty` while it owns buckets, and `AccessDenied`
    for a root user, without whom nobody could act for the others."""

    name: str


@command(tag=23)
class AddAccessKey(Command[None]):
    """Add an access key to a user. Raises `NoSuchUser`, `AccessKeyExists`, `InvalidArgument`."""

    user: str
    access_key: str
    secret: bytes
    master: str
    expires_ns: int = 0
    """By the wall clock; 0: never."""


@command(tag=26, frees=True)
class SetUserDisabled(Command[None]):
    """Disable a user, so that its access keys are not accepted, or enable it again. Raises `NoSuchUser`, and
    `AccessDenied` for a root user."""

    name: str
    disabled: bool


@command(tag=24)
class RemoveAccessKey(Command[None]):
    """Remove an access key. Raises `NoSuchAccessKey`, and `AccessDenied` for the last one of a root user."""

    access_key: str


@command(tag=25)
class ResealAccessKeys(Command[int]):
    """Replace sealed secrets by the same ones under another master key. Returns how many were replaced.

    *items*: access key, the sealed secret as it was read, the new one, and the id of the new master key. A key that was
    removed or changed meanwhile is skipped."""

    items: tuple[tuple[str, bytes, bytes, str], ...]


def add_tenant(command: AddTenant, tx: Tx) -> int:
    check_user(command.name)
    tenant = tx.get(TENANT, (command.name,))
    if tenant is not None:
        return tenant.id
    made = TenantMade(command.name, tx.new_id())
    tx.emit(made)
    return made.id


def add_user(command: AddUser, tx: Tx) -> int:
    check_user(command.name)
    tx.prefetch([(TENANT, (command.tenant,)), (USER, (command.name,)), (ACCESS_KEY, (command.access_key,))])
    if tx.get(USER, (command.name,)) is not None:
        raise UserExists(command.name)
    tenant = _tenant(tx, command.tenant)
    made = UserMade(command.name, tx.new_id(), tenant.id, int(command.root), tx.at_ns)
    tx.emit(made)
    if command.access_key:
        _emit_access_key(tx, command.name, command.access_key, command.secret, command.master)
    return made.id


def remove_user(command: RemoveUser, tx: Tx) -> None:
    user = _user(tx, command.name)
    if user.root:
        raise AccessDenied(f"{command.name} is the site's root user and cannot be removed")
    if user.buckets:
        raise NotEmpty(f"{command.name} owns {user.buckets} bucket(s)")
    tx.prefetch([(ACCESS_KEY, (each,)) for each in unpack(user.access_keys)])
    tx.emit(UserDeleted(command.name))


def add_access_key(command: AddAccessKey, tx: Tx) -> None:
    user = _user(tx, command.user)
    if len(unpack(user.access_keys)) >= ACCESS_KEYS_MAX:
        raise InvalidArgument(f"{command.user} has {ACCESS_KEYS_MAX} access keys, which is the maximum")
    if command.expires_ns and command.expires_ns <= tx.at_ns:
        raise InvalidArgument("the time at which the access key expires has passed")
    _emit_access_key(tx, command.user, command.access_key, command.secret, command.master, command.expires_ns)


def set_user_disabled(command: SetUserDisabled, tx: Tx) -> None:
    user = _user(tx, command.name)
    if user.root:
        raise AccessDenied(f"{command.name} is the site's root user and cannot be disabled")
    if user.disabled != int(command.disabled):
        tx.need_feature(USER_STATES_FEATURE)
        tx.emit(UserDisabledSet(command.name, int(command.disabled)))


def remove_access_key(command: RemoveAccessKey, tx: Tx) -> None:
    key = tx.get(ACCESS_KEY, (command.access_key,))
    if key is None:
        raise NoSuchAccessKey(command.access_key)
    user = _user(tx, key.user)
    if user.root and len(unpack(user.access_keys)) == 1:
        raise AccessDenied(f"this is the last access key of the root user {user.name}: add another one first")
    tx.emit(AccessKeyDeleted(command.access_key))


def reseal_access_keys(command: ResealAccessKeys, tx: Tx) -> int:
    tx.prefetch([(ACCESS_KEY, (access_key,)) for access_key, *_ in command.items])
    changed = 0
    for access_key, before, secret, master in command.items:
        key = tx.get(ACCESS_KEY, (access_key,))
        if key is not None and key.secret == before:
            tx.emit(AccessKeyResealed(access_key, secret, master))
            changed += 1
    return changed


def _emit_access_key(tx: Tx, user: str, access_key: str, secret: bytes, master: str, expires_ns: int = 0) -> None:
    check_access_key(access_key)
    if tx.get(ACCESS_KEY, (access_key,)) is not None:
        raise AccessKeyExists(access_key)
    if expires_ns:
        tx.need_feature(USER_STATES_FEATURE)
    tx.emit(AccessKeyMade(access_key, user, secret, master, tx.at_ns, expires_ns))


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
