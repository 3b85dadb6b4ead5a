"""The table of all commands that the committer runs, and the metrics of its commits."""

from __future__ import annotations

from gateway import blocks, identity, namespace, placement, reconcile
from gateway.crypto import ring_key_commands
from gateway.journal.commands import CommandTable
from gateway.metrics import counter, histogram
from gateway.metrics.instruments import SIZES

COMMANDS: CommandTable = {
    **identity.COMMANDS,
    **ring_key_commands.COMMANDS,
    **placement.COMMANDS,
    **blocks.COMMANDS,
    **reconcile.COMMANDS,
    **namespace.COMMANDS,
}

COMMITS = counter("entrepot_journal_commits_total", "Batches that were made durable.")
BATCHED = counter("entrepot_journal_commands_total", "Commands of those batches.")
RECORDED = counter("entrepot_journal_records_total", "Records of those batches.")
SECONDS = histogram("entrepot_journal_commit_seconds", "How long making a batch durable took.")
BATCH = histogram("entrepot_journal_batch_commands", "How many commands were in a batch.", (), SIZES)


def observe_commit(commands: int, records: int, seconds: float) -> None:
    """Update the metrics for one commit of so many *commands* and *records*, which took *seconds*."""
    COMMITS.add()
    BATCHED.add(commands)
    RECORDED.add(records)
    SECONDS.observe(seconds)
    BATCH.observe(commands)
