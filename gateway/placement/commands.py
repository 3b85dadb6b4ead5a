"""Commands that assign ids to the names of backends, sets of backends and policies. Rows store these ids. Pure.

An id never changes once assigned. Repeating a command returns the same id.
"""

from __future__ import annotations

from gateway.errors import InvalidArgument
from gateway.journal.columns import pack
from gateway.journal.commands import Command, CommandTable, Tx, command
from gateway.journal.records.site import BackendNamed, BackendSetNamed, PolicyNamed
from gateway.journal.tables import BACKEND, BACKEND_SET, POLICY


@command(tag=40)
class NameBackend(Command[int]):
    """Return the id of the backend *name*."""

    name: str


@command(tag=41)
class NameBackendSet(Command[int]):
    """Return the id of the set of the backends *members* (ids), in any order. Raises `InvalidArgument` if it is
    empty."""

    members: tuple[int, ...]


@command(tag=42)
class NamePolicy(Command[int]):
    """Return the id of the policy *name*."""

    name: str


def name_backend(request: NameBackend, tx: Tx) -> int:
    row = tx.get(BACKEND, (request.name,))
    if row is not None:
        return row.id
    record = BackendNamed(request.name, tx.new_id())
    tx.emit(record)
    return record.id


def name_backend_set(request: NameBackendSet, tx: Tx) -> int:
    members = tuple(sorted(set(request.members)))
    if not members:
        raise InvalidArgument("a set of backends has at least one member")
    return backend_set_id(tx, members)


def backend_set_id(tx: Tx, members: tuple[int, ...]) -> int:
    """Return the id of the set of *members*, which are sorted, and name the set if it has no id."""
    row = tx.get(BACKEND_SET, (pack(list(members)),))
    if row is not None:
        return row.id
    record = BackendSetNamed(members, tx.new_id())
    tx.emit(record)
    return record.id


def name_policy(request: NamePolicy, tx: Tx) -> int:
    row = tx.get(POLICY, (request.name,))
    if row is not None:
        return row.id
    record = PolicyNamed(request.name, tx.new_id())
    tx.emit(record)
    return record.id


COMMANDS: CommandTable = {
    NameBackend: name_backend,
    NameBackendSet: name_backend_set,
    NamePolicy: name_policy,
}
"""The commands of this package and the functions that run them, for the committer."""
