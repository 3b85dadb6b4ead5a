"""What an operator does about users and their access keys. Secrets are sealed here, on the way to the committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.crypto.ring import seal_secret
from gateway.errors import NoSuchUser
from gateway.identity import names
from gateway.identity.users import AddAccessKey, AddUser, RemoveAccessKey, RemoveUser
from gateway.journal.columns import unpack

if TYPE_CHECKING:
    from gateway.site.site import Site

TENANT = "default"


class NewAccessKey(NamedTuple):
    """An access key as it is told once, to who asked for it."""

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
    """What was asked for, checked; drawn at random where nothing was. Raises `InvalidArgument`."""
    chosen = names.new_access_key() if access_key is None else names.check_access_key(access_key)
    return NewAccessKey(user, chosen, names.new_secret() if secret is None else names.check_secret(secret))


async def add_user(site: Site, name: str, access_key: str | None = None, secret: str | None = None) -> NewAccessKey:
    """Make a user with a first access key. Raises `UserExists`, `AccessKeyExists`, `InvalidArgument`."""
    key = choose_access_key(names.check_user(name), access_key, secret)
    master = site.keyring.masters.current
    sealed = seal_secret(master, key.access_key, key.secret)
    await site.journal.send(AddUser(name, TENANT, False, key.access_key, sealed, master.id))
    return key


async def remove_user(site: Site, name: str) -> None:
    """Raises `NoSuchUser`, `NotEmpty` while the user owns buckets, `AccessDenied` for the root user."""
    await site.journal.send(RemoveUser(name))


async def add_access_key(
    site: Site, user: str, access_key: str | None = None, secret: str | None = None
) -> NewAccessKey:
    """One more access key. Raises `NoSuchUser`, `AccessKeyExists`, `InvalidArgument`."""
    key = choose_access_key(user, access_key, secret)
    master = site.keyring.masters.current
    sealed = seal_secret(master, key.access_key, key.secret)
    await site.journal.send(AddAccessKey(user, key.access_key, sealed, master.id))
    return key


async def remove_access_key(site: Site, access_key: str) -> None:
    """Raises `NoSuchAccessKey`, `AccessDenied` for the root user's last one."""
    await site.journal.send(RemoveAccessKey(access_key))


def list_users(site: Site) -> list[UserInfo]:
    """All users, by name."""
    rows = site.store.query("SELECT name, root, buckets, access_keys, made_ns FROM user ORDER BY name")
    return [UserInfo(name, bool(root), buckets, unpack(keys) or (), made) for name, root, buckets, keys, made in rows]


def list_access_keys(site: Site, user: str | None = None) -> list[AccessKeyInfo]:
    """Access keys, of one user or of all, by user and age. Raises `NoSuchUser`."""
    if user is not None and not site.store.query("SELECT 1 FROM user WHERE name = ?", (user,)):
        raise NoSuchUser(user)
    rows = site.store.query("SELECT access_key, user, made_ns FROM access_key ORDER BY user, made_ns, access_key")
    return [AccessKeyInfo(*row) for row in rows if user is None or row[1] == user]
