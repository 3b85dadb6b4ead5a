"""A name of the config keeps the id that it was given."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import InvalidArgument
from gateway.journal.commands import Tx
from gateway.journal.rows import Overlay
from gateway.placement.commands import COMMANDS, NameBackend, NameBackendSet, NamePolicy


class Nothing:
    def get(self, table: Any, key: Any) -> None:
        return None


@pytest.fixture
def tx() -> Tx:
    return Tx(Overlay(Nothing()), number=1, next_id=100, at_ns=7, session=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", [NameBackend("disk"), NameBackendSet((3, 4)), NamePolicy("default")])
def test_a_name_is_given_an_id_once(tx: Tx, command: Any) -> None:
    run = COMMANDS[type(command)]
    assert run(command, tx) == run(command, tx)
    assert len(tx.records) == 1


def test_a_set_is_the_same_in_any_order(tx: Tx) -> None:
    run = COMMANDS[NameBackendSet]
    assert run(NameBackendSet((4, 3, 4)), tx) == run(NameBackendSet((3, 4)), tx)
    assert run(NameBackendSet((3,)), tx) != run(NameBackendSet((3, 4)), tx)


def test_an_empty_set_is_refused(tx: Tx) -> None:
    with pytest.raises(InvalidArgument):
        COMMANDS[NameBackendSet](NameBackendSet(()), tx)
