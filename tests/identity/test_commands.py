"""Commands on users and keys, run over rows in memory."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.crypto import ring_key_commands
from gateway.crypto.ring_key_commands import AddRingKey, DrawRingKeyId, RewrapRingKeys
from gateway.errors import (
    AccessDenied,
    AccessKeyExists,
    InvalidArgument,
    NameExists,
    NoSuchAccessKey,
    NoSuchUser,
    NotEmpty,
    UserExists,
)
from gateway.identity import COMMANDS
from gateway.identity.users import AddAccessKey, AddTenant, AddUser, RemoveAccessKey, RemoveUser, ResealAccessKeys
from gateway.journal.columns import unpack
from gateway.journal.commands import Tx
from gateway.journal.rows import Overlay
from gateway.journal.tables import ACCESS_KEY, RING_KEY, TENANT, USER


class Nothing:
    """Rows of an empty store."""

    def get(self, table: Any, key: Any) -> None:
        return None

    put = drop = None


HANDLERS = {**COMMANDS, **ring_key_commands.COMMANDS}


class Desk:
    """Runs commands one after the other, each on what the one before left."""

    def __init__(self) -> None:
        self.rows = Overlay(Nothing())  # type: ignore[arg-type]
        self.next_id = 100
        self.number = 1
        self.emitted: list[Any] = []

    def run(self, command: Any) -> Any:
        above = Overlay(self.rows)
        tx = Tx(above, number=self.number, next_id=self.next_id, at_ns=7, session=1)
        answer = HANDLERS[type(command)](command, tx)
        above.merge_into(self.rows)
        self.next_id, self.number = tx.next_id, tx.number
        self.emitted.extend(tx.records)
        return answer

    def refuses(self, error: type[Exception], command: Any) -> str:
        before = dict(self.rows.changed)
        with pytest.raises(error) as refused:
            self.run(command)
        assert self.rows.changed == before, "a refused command changed rows"
        return str(refused.value)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.run(AddTenant("default"))
    desk.run(AddUser("root", "default", True, "ROOTKEY", b"sealed", "m1"))
    return desk


def user(name: str, access_key: str = "", *, root: bool = False) -> AddUser:
    return AddUser(name, "default", root, access_key, b"sealed " + access_key.encode(), "m1")


def test_a_user_comes_with_its_first_key(desk: Desk) -> None:
    ada = desk.run(user("ada", "ADAKEY"))
    row = desk.rows.get(USER, ("ada",))
    assert row is not None and row.id == ada and not row.root
    key = desk.rows.get(ACCESS_KEY, ("ADAKEY",))
    assert key is not None
    assert (key.user, key.user_id, key.secret, key.master) == ("ada", ada, b"sealed ADAKEY", "m1")


def test_a_tenant_made_twice_is_one(desk: Desk) -> None:
    assert desk.run(AddTenant("default")) == desk.run(AddTenant("default"))
    assert len([each for each in desk.emitted if type(each).__name__ == "TenantMade"]) == 1


def test_a_name_or_key_that_is_taken_is_refused_and_nothing_changes(desk: Desk) -> None:
    desk.run(user("ada", "ADAKEY"))
    desk.refuses(UserExists, user("ada", "OTHER"))
    desk.refuses(AccessKeyExists, user("eve", "ADAKEY"))
    desk.refuses(AccessKeyExists, AddAccessKey("root", "ADAKEY", b"", "m1"))
    assert desk.rows.get(USER, ("eve",)) is None


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "ü", "a" * 65, "a/b", "a\n"])
def test_odd_names_are_refused(desk: Desk, name: str) -> None:
    desk.refuses(InvalidArgument, user(name))


@pytest.mark.parametrize("access_key", ["ab", "a/b/c", "a" * 129, "key with spaces", "ключ", "abc\n"])
def test_odd_access_keys_are_refused(desk: Desk, access_key: str) -> None:
    desk.refuses(InvalidArgument, AddAccessKey("root", access_key, b"", "m1"))


def test_a_removed_user_takes_its_keys_along(desk: Desk) -> None:
    desk.run(user("ada", "ADAKEY"))
    desk.run(AddAccessKey("ada", "ADAKEY2", b"", "m1"))
    desk.run(RemoveUser("ada"))
    assert desk.rows.get(USER, ("ada",)) is None
    assert desk.rows.get(ACCESS_KEY, ("ADAKEY",)) is None
    assert desk.rows.get(ACCESS_KEY, ("ADAKEY2",)) is None
    desk.refuses(NoSuchUser, RemoveUser("ada"))


def test_a_user_that_owns_buckets_stays(desk: Desk) -> None:
    desk.run(user("ada"))
    row = desk.rows.get(USER, ("ada",))
    assert row is not None
    desk.rows.put(USER, row._replace(buckets=2))
    assert "2 bucket" in desk.refuses(NotEmpty, RemoveUser("ada"))


def test_the_root_user_and_its_last_key_stay(desk: Desk) -> None:
    desk.refuses(AccessDenied, RemoveUser("root"))
    desk.refuses(AccessDenied, RemoveAccessKey("ROOTKEY"))
    desk.run(AddAccessKey("root", "ROOTKEY2", b"", "m1"))
    desk.run(RemoveAccessKey("ROOTKEY"))
    row = desk.rows.get(USER, ("root",))
    assert row is not None and unpack(row.access_keys) == ("ROOTKEY2",)


def test_an_unknown_key_cannot_be_removed(desk: Desk) -> None:
    desk.refuses(NoSuchAccessKey, RemoveAccessKey("NOBODYS"))


def test_keys_are_bounded_in_number(desk: Desk) -> None:
    for number in range(99):
        desk.run(AddAccessKey("root", f"KEY{number}", b"", "m1"))
    desk.refuses(InvalidArgument, AddAccessKey("root", "ONEMORE", b"", "m1"))


def test_resealing_leaves_alone_what_changed_meanwhile(desk: Desk) -> None:
    desk.run(user("ada", "ADAKEY"))
    items = (("ADAKEY", b"sealed ADAKEY", b"new", "m2"), ("ROOTKEY", b"stale", b"new", "m2"), ("GONE", b"", b"", "m2"))
    assert desk.run(ResealAccessKeys(items)) == 1
    key = desk.rows.get(ACCESS_KEY, ("ADAKEY",))
    assert key is not None and (key.secret, key.master) == (b"new", "m2")
    other = desk.rows.get(ACCESS_KEY, ("ROOTKEY",))
    assert other is not None and other.master == "m1"


def test_a_new_ring_key_becomes_its_tenants(desk: Desk) -> None:
    drawn = desk.run(DrawRingKeyId())
    assert desk.run(AddRingKey(drawn, "default", 0, b"wrapped", "m1")) == drawn
    tenant = desk.rows.get(TENANT, ("default",))
    assert tenant is not None and tenant.ring_key == drawn


def test_of_two_that_renew_at_once_one_wins(desk: Desk) -> None:
    first, second = desk.run(DrawRingKeyId()), desk.run(DrawRingKeyId())
    assert desk.run(AddRingKey(first, "default", 0, b"1", "m1")) == first
    assert desk.run(AddRingKey(second, "default", 0, b"2", "m1")) == first
    assert desk.rows.get(RING_KEY, (second,)) is None


def test_an_id_drawn_twice_makes_one_ring_key(desk: Desk) -> None:
    drawn = desk.run(DrawRingKeyId())
    desk.run(AddRingKey(drawn, "default", 0, b"1", "m1"))
    desk.refuses(NameExists, AddRingKey(drawn, "default", drawn, b"2", "m1"))


def test_rewrapping_leaves_alone_what_changed_meanwhile(desk: Desk) -> None:
    drawn = desk.run(DrawRingKeyId())
    desk.run(AddRingKey(drawn, "default", 0, b"1", "m1"))
    assert desk.run(RewrapRingKeys(((drawn, b"other", b"2", "m2"), (drawn + 1, b"", b"", "m2")))) == 0
    assert desk.run(RewrapRingKeys(((drawn, b"1", b"2", "m2"),))) == 1
    row = desk.rows.get(RING_KEY, (drawn,))
    assert row is not None and (row.wrapped, row.master) == (b"2", "m2")
