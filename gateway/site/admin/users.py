"""Manage users and their access keys. Secrets are sealed here, before they are sent to the committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.crypto.ring import seal_secret
from gateway.errors import NoSuchBucket, NoSuchUser
from gateway.identity import names
from gateway.identity.users import AddAccessKey, AddUser, RemoveAccessKey, RemoveUser, SetUserDisabled
from gateway.journal.columns import unpack
from gateway.namespace.commands.buckets import TransferBucket

if TYPE_CHECKING:
    from gateway.site.site import Site
    from gateway.site.site_view import SiteView

TENANT = "default"


class NewAccessKey(NamedTuple):
    """A new access key with its secret, which is shown only once. `repr` omits the secret."""

    user: str
    access_key: str
    secret: str

    def __repr__(self) -> str:
        return f"NewKey({self.user!r}, {self.access_key!r})"


class UserInfo(NamedTuple):
    name: str
    root: bool
    buckets: int
    access_keys: tuple[str, ...]
    made_ns: int
    disabled: bool


class AccessKeyInfo(NamedTuple):
    access_key: str
    user: str
    made_ns: int
    expires_ns: int
    """By the wall clock; 0: never."""


def choose_access_key(user: str, access_key: str | None = None, secret: str | None = None) -> NewAccessKey:
    """Return the access key for *user*. *access_key* and *secret* are validated, or drawn at random if they are None.
    Raises `InvalidArgument`."""
    chosen = names.new_access_key() if access_key is None else names.check_access_key(access_key)
    return NewAccessKey(user, chosen, names.new_secret() if secret is None else names.check_secret(secret))


async def add_user(site: Site, name: str, access_key: str | None = None, secret: str | None = None) -> NewAccessKey:
    """Create a user with a first access key. Raises `UserExists`, `AccessKeyExists`, `InvalidArgument`."""
    key = choose_access_key(names.check_user(name), access_key, secret)
    master = site.keyring.masters.current
    sealed = seal_secret(master, key.access_key, key.secret)
    await site.journal.send(AddUser(name, TENANT, False, key.access_key, sealed, master.id))
    return key


async def remove_user(site: Site, name: str) -> None:
    """Remove a user and all its access keys. Raises `NoSuchUser`, `NotEmpty` if the user owns buckets, and
    `AccessDenied` for the root user."""
    await site.journal.send(RemoveUser(name))


async def add_access_key(
    site: Site, user: str, access_key: str | None = None, secret: str | None = None, expires_ns: int = 0
) -> NewAccessKey:
    """Add an access key for *user*, which is accepted until *expires_ns* by the wall clock; 0: for good.

    Raises `NoSuchUser`, `AccessKeyExists`, `InvalidArgument`."""
    key = choose_access_key(user, access_key, secret)
    master = site.keyring.masters.current
    sealed = seal_secret(master, key.access_key, key.secret)
    await site.journal.send(AddAccessKey(user, key.access_key, sealed, master.id, expires_ns))
    return key


async def set_disabled(site: Site, name: str, disabled: bool) -> None:
    """Disable a user, so that its access keys are not accepted, or enable it again. Raises `NoSuchUser`, and
    `AccessDenied` for the root user."""
    await site.journal.send(SetUserDisabled(name, disabled))


async def transfer_bucket(site: Site, bucket: str, owner: str) -> str:
    """Give a bucket another owner. Returns the name of the former one. Raises `NoSuchBucket`, `NoSuchUser`."""
    rows = site.store.query("SELECT u.name FROM bucket b JOIN user u ON u.id = b.owner WHERE b.name = ?", (bucket,))
    if not rows:
        raise NoSuchBucket(bucket)
    former: str = rows[0][0]
    await site.journal.send(TransferBucket(bucket, former, owner))
    return former


async def remove_access_key(site: Site, access_key: str) -> None:
    """Remove an access key. Raises `NoSuchAccessKey`, and `AccessDenied` for the last key of the root user."""
    await site.journal.send(RemoveAccessKey(access_key))


def list_users(site: SiteView) -> list[UserInfo]:
    """Return all users, sorted by name."""
    rows = site.store.query("SELECT name, root, buckets, access_keys, made_ns, disabled FROM user ORDER BY name")
    return [
        UserInfo(name, bool(root), buckets, unpack(keys) or (), made_ns, bool(disabled))
        for name, root, buckets, keys, made_ns, disabled in rows
    ]


def list_access_keys(site: SiteView, user: str | None = None) -> list[AccessKeyInfo]:
    """Return the access keys of *user*, or of all users if it is None, sorted by user and age. Raises `NoSuchUser`."""
    if user is not None and not site.store.query("SELECT 1 FROM user WHERE name = ?", (user,)):
        raise NoSuchUser(user)
    rows = site.store.query(
        "SELECT access_key, user, made_ns, expires_ns FROM access_key ORDER BY user, made_ns, access_key"
    )
    return [AccessKeyInfo(*row) for row in rows if user is None or row[1] == user]
