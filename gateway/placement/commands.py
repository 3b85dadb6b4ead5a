"""Commands that give the config's names an id: what rows hold instead of a name. Pure.

An id once given to a name stays; asking again answers the same one.
"""

from __future__ import annotations

from gateway.errors import InvalidArgument
from gateway.journal.columns import pack
from gateway.journal.commands import Command, CommandTable, Tx, command
from gateway.journal.records.site import BackendNamed, BackendSetNamed, PolicyNamed
from gateway.journal.tables import BACKEND, BACKEND_SET, POLICY


@command(tag=40)
class NameBackend(Command[int]):
    """Answers the backend's id."""

    name: str


@command(tag=41)
class NameBackendSet(Command[int]):
    """Answers the id of the set of these backends, whatever their order. Raises `InvalidArgument` for an empty one."""

    members: tuple[int, ...]


@command(tag=42)
class NamePolicy(Command[int]):
    """Answers the policy's id."""

    name: str


def name_backend(asked: NameBackend, tx: Tx) -> int:
    found = tx.get(BACKEND, (asked.name,))
    if found is not None:
        return found.id
    made = BackendNamed(asked.name, tx.new_id())
    tx.emit(made)
    return made.id


def name_backend_set(asked: NameBackendSet, tx: Tx) -> int:
    members = tuple(sorted(set(asked.members)))
    if not members:
        raise InvalidArgument("a set of backends has at least one member")
    found = tx.get(BACKEND_SET, (pack(list(members)),))
    if found is not None:
        return found.id
    made = BackendSetNamed(members, tx.new_id())
    tx.emit(made)
    return made.id


def name_policy(asked: NamePolicy, tx: Tx) -> int:
    found = tx.get(POLICY, (asked.name,))
    if found is not None:
        return found.id
    made = PolicyNamed(asked.name, tx.new_id())
    tx.emit(made)
    return made.id


COMMANDS: CommandTable = {
    NameBackend: name_backend,
    NameBackendSet: name_backend_set,
    NamePolicy: name_policy,
}
"""What the committer runs for this room."""
