"""Manage users and their access keys. Secrets are sealed here, before they are sent to the committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.crypto.ring import seal_secret
from gateway.errors import NoSuchUser
from gateway.identity import names
from gateway.identity.users import AddAccessKey, AddUser, RemoveAccessKey, RemoveUser
from gateway.journal.columns import unpack

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


class AccessKeyInfo(NamedTuple):
    access_key: str
    user: str
    made_ns: int


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
    site: Site, user: str, access_key: str | None = None, secret: str | None = None
) -> NewAccessKey:
    """Add an access key for *user*. Raises `NoSuchUser`, `AccessKeyExists`, `InvalidArgument`."""
    key = choose_access_key(user, access_key, secret)
    master = site.keyring.masters.current
    sealed = seal_secret(master, key.access_key, key.secret)
    await site.journal.send(AddAccessKey(user, key.access_key, sealed, master.id))
    return key


async def remove_access_key(site: Site, access_key: str) -> None:
    """Remove an access key. Raises `NoSuchAccessKey`, and `AccessDenied` for the last key of the root user."""
    await site.journal.send(RemoveAccessKey(access_key))


def list_users(site: SiteView) -> list[UserInfo]:
    """Return all users, sorted by name."""
    rows = site.store.query("SELECT name, root, buckets, access_keys, made_ns FROM user ORDER BY name")
    return [UserInfo(name, bool(root), buckets, unpack(keys) or (), made) for name, root, buckets, keys, made in rows]


def list_access_keys(site: SiteView, user: str | None = None) -> list[AccessKeyInfo]:
    """Return the access keys of *user*, or of all users if it is None, sorted by user and age. Raises `NoSuchUser`."""
    if user is not None and not site.store.query("SELECT 1 FROM user WHERE name = ?", (user,)):
        raise NoSuchUser(user)
    rows = site.store.query("SELECT access_key, user, made_ns FROM access_key ORDER BY user, made_ns, access_key")
    return [AccessKeyInfo(*row) for row in rows if user is None or row[1] == user]
