"""Metrics of blocks: how many are stored and read, and how many bodies share a pack."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.metrics import counter, gauge, histogram
from gateway.metrics.instruments import SIZES
from gateway.placement.breaker import CircuitHealth, CircuitState

STORED = counter("entrepot_blocks_stored_total", "Blocks that were made durable.", ("kind",))
STORED_BYTES = counter("entrepot_blocks_stored_bytes_total", "Sealed bytes of the stored blocks.", ("kind",))
PACKED = histogram("entrepot_pack_bodies", "Bodies in a pack.", (), SIZES)
OPENED = counter("entrepot_block_reads_total", "Ranges of blocks that were verified and decrypted.", ("how",))
FAILED = counter("entrepot_block_copies_failed_total", "Copies that could not be read or failed verification.")
BAD = counter("entrepot_block_copies_bad_total", "Copies that reads found absent or damaged.", ("word",))
HEDGED = counter("entrepot_block_reads_hedged_total", "Reads that asked a second copy since one was slow.", ("what",))
JOINED = counter("entrepot_block_fetches_joined_total", "Readers that shared another reader's fetch of a block.")
CIRCUIT = gauge(
    "entrepot_backend_circuit", "Whether reads avoid a backend: 0 no, 1 being tried again, 2 yes.", ("backend",), "max"
)

PACK, WHOLE = "pack", "whole"
AT_HAND, FETCHED = "at hand", "fetched"
ASKED, WON = "asked", "won"
_CIRCUITS = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}


def record_stored(kind: str, size: int) -> None:
    """Count a block of *size* sealed bytes that was made durable. *kind*: `PACK` or `WHOLE`."""
    STORED.add(1, kind)
    STORED_BYTES.add(size, kind)


def set_circuits(health_by_name: Mapping[str, CircuitHealth]) -> None:
    """Set the gauge of circuits to the state of each backend, by name."""
    CIRCUIT.only({name: _CIRCUITS[health.state] for name, health in health_by_name.items()})
