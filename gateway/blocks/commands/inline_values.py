"""The command of inline values: rows are dropped whose values are on their backends, or are not wanted there."""

from __future__ import annotations

from gateway.journal.commands import Command, Tx, command
from gateway.journal.tables import INLINE_VALUE


@command(71, frees=True, weight=lambda command: len(command.dropped))
class DropInlineValues(Command[None]):
    """Drop the rows of inline values. Emits no record, since no record made them."""

    dropped: tuple[bytes, ...]
    """Block ids. Those without such a row are skipped."""


def drop_inline_values(command: DropInlineValues, tx: Tx) -> None:
    for block in command.dropped:
        tx.rows.drop(INLINE_VALUE, (block,))
