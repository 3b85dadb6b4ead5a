"""Credential look-ups are current; the cache is used only while the row is unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.identity import credentials
from gateway.identity.credentials import CredentialCache

ROW = (b"sealed", "m1", "ada", 7, 1, 0, 0, 0)


class QueryStore:
    """Rows by access key, and a version that whoever commits raises."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[Any, ...]] = {"ADAKEY": ROW}
        self.version = 1
        self.queries = 0

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        self.queries += 1
        found = self.rows.get(values[0])
        return [] if found is None else [found]

    def catalog_version(self) -> int:
        return self.version


@pytest.fixture
def store() -> QueryStore:
    return QueryStore()


def unseal(access_key: str, sealed: bytes, master: str) -> str:
    return f"secret of {access_key} {sealed.decode()} {master}"


def test_a_known_key_answers_secret_and_user(store: QueryStore) -> None:
    found = CredentialCache(store, unseal).find("ADAKEY")
    assert found is not None
    assert found == ("secret of ADAKEY sealed m1", "ada", 7, 1, False, False, 0)
    assert "secret" not in repr(found)


def test_nothing_is_asked_twice_while_nothing_was_committed(store: QueryStore) -> None:
    known = CredentialCache(store, unseal)
    assert known.find("ADAKEY") == known.find("ADAKEY")
    assert (store.queries, known.opened) == (1, 1)


def test_behind_a_commit_the_row_is_read_again_but_its_secret_not_opened(store: QueryStore) -> None:
    known = CredentialCache(store, unseal)
    known.find("ADAKEY")
    store.version += 1
    known.find("ADAKEY")
    assert (store.queries, known.opened) == (2, 1)


def test_a_removed_key_is_unknown_with_the_next_look_up(store: QueryStore) -> None:
    known = CredentialCache(store, unseal)
    known.find("ADAKEY")
    del store.rows["ADAKEY"]
    store.version += 1
    assert known.find("ADAKEY") is None


def test_a_resealed_secret_is_opened_anew(store: QueryStore) -> None:
    known = CredentialCache(store, unseal)
    known.find("ADAKEY")
    store.rows["ADAKEY"] = (b"again", "m2", *ROW[2:])
    store.version += 1
    found = known.find("ADAKEY")
    assert found is not None
    assert found.secret == "secret of ADAKEY again m2"


def test_what_is_remembered_is_bounded_and_strangers_are_not_remembered(
    store: QueryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "CACHE_ENTRIES_MOST", 10)
    known = CredentialCache(store, unseal)
    for number in range(50):
        known.find(f"STRANGER{number}")
        store.rows[f"KEY{number}"] = ROW
        known.find(f"KEY{number}")
        assert len(known._cache) <= 10
