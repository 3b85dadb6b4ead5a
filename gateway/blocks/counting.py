"""What is counted of blocks: how many are stored and read, and how many bodies share a pack."""

from __future__ import annotations

from gateway.metrics import counter, histogram
from gateway.metrics.instruments import SIZES

STORED = counter("entrepot_blocks_stored_total", "Blocks that were made durable.", ("kind",))
STORED_BYTES = counter("entrepot_blocks_stored_bytes_total", "Sealed bytes of those.", ("kind",))
PACKED = histogram("entrepot_pack_bodies", "How many bodies shared a pack.", (), SIZES)
OPENED = counter("entrepot_block_reads_total", "Stretches of blocks that were opened.", ("how",))
FAILED = counter("entrepot_block_copies_failed_total", "Copies that did not answer, or were not what was sealed.")

PACK, WHOLE = "pack", "whole"
AT_HAND, FETCHED = "at hand", "fetched"


def stored(kind: str, size: int) -> None:
    """A block of so many sealed bytes is durable."""
    STORED.add(1, kind)
    STORED_BYTES.add(size, kind)
