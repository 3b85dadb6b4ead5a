"""How many connections a worker keeps, and how many bytes of unfinished heads: what strangers could pile up. Pure.

A body is bounded by the budget that it is charged to, and comes behind a signature; these come before anybody is known.
A connection counts from the moment it is accepted, under the address that it comes from. Where there is no room for
another one, an idle one makes room: the oldest of the address that has the most. So who opens many connections and
leaves them idle takes room from himself first, and from nobody who has fewer.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol

from gateway.engine.shares import Shares

EVICTION_SCAN_MOST = 64
"""Connections of one address that are looked at for one that is idle."""
IPV6_PREFIX_BITS = 64
"""Addresses that share so many bits are one party's (RFC 6177): each household gets at least that much."""


class CountedConnection(Protocol):
    """One connection, as it is counted."""

    @property
    def address(self) -> str:
        """Where it comes from, as `address_group` has it. The same for as long as it is counted."""

    @property
    def idle(self) -> bool:
        """No request is under way on it."""

    def evict(self) -> None:
        """End at once. It is not counted any more."""


class ConnectionLimit:
    """A bounded set of visitors, by their addresses. Every call takes constant time."""

    __slots__ = ("_by_address", "_by_count", "_count", "_limit", "_most")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._by_address: dict[str, dict[CountedConnection, None]] = {}
        """Each address's visitors, oldest first."""
        self._by_count: dict[int, dict[str, None]] = {}
        """The addresses that have so many visitors."""
        self._most = 0
        """The most that one address has."""

    def __len__(self) -> int:
        return self._count

    def admit(self, connection: CountedConnection) -> bool:
        """Count one more; where there is no room, an idle one makes room. Whether there is room for it."""
        if self._count >= self._limit and not self._evict_idle():
            return False
        self._add(connection)
        return True

    def _evict_idle(self) -> bool:
        address = next(iter(self._by_count.get(self._most, ())), None)
        if address is None:
            return False
        connections = self._by_address[address]
        for connection, _ in zip(connections, range(EVICTION_SCAN_MOST), strict=False):
            if connection.idle:
                self.remove(connection)
                connection.evict()
                return True
        for connection in [connection for connection, _ in zip(connections, range(EVICTION_SCAN_MOST), strict=False)]:
            connections[connection] = connections.pop(connection)  # the next time others are looked at
        return False

    def remove(self, connection: CountedConnection) -> None:
        """Do not count it any more. Harmless where it is not counted."""
        connections = self._by_address.get(connection.address)
        if connections is None or connection not in connections:
            return
        del connections[connection]
        self._recount(connection.address, len(connections) + 1, len(connections))
        if not connections:
            del self._by_address[connection.address]

    def replace(self, connection: CountedConnection, successor: CountedConnection) -> bool:
        """Count *successor* instead, which has the same address. Whether *visitor* was counted."""
        connections = self._by_address.get(connection.address)
        if connections is None or connection not in connections:
            return False
        del connections[connection]
        connections[successor] = None
        return True

    def _add(self, connection: CountedConnection) -> None:
        connections = self._by_address.setdefault(connection.address, {})
        connections[connection] = None
        self._recount(connection.address, len(connections) - 1, len(connections))

    def _recount(self, address: str, before: int, now: int) -> None:
        self._count += now - before
        if before:
            addresses = self._by_count[before]
            del addresses[address]
            if not addresses:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, {})[address] = None
        if now > self._most or (before == self._most and before not in self._by_count):
            self._most = now


class Admission:
    """The counts of one worker."""

    __slots__ = ("_heads", "closed", "crowd", "handshakes")

    def __init__(self, connections_limit: int, heads_limit_bytes: int, handshakes_limit: int = 1 << 30) -> None:
        self.crowd = ConnectionLimit(connections_limit)
        """All connections."""
        self.handshakes = ConnectionLimit(handshakes_limit)
        """Those of them whose TLS handshake is under way."""
        self.closed = False
        """The server stops: no request is waited for any more."""
        self._heads = Shares(heads_limit_bytes, "unfinished heads")

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self.crowd)

    @property
    def heads_bytes(self) -> int:
        """Of heads that have not ended yet."""
        return self._heads.total

    def reserve_head(self, address: str, count: int) -> bool:
        """*count* bytes more of an unfinished head. Whether there is room for them; otherwise they are not held."""
        return self._heads.try_add(address, count)

    def release_head(self, address: str, count: int) -> None:
        """A head, of which *count* bytes are held, has ended."""
        self._heads.remove(address, count)


def address_group(peer: object) -> str:
    """What counts as one address, of a transport's `peername`: an IPv4 address, or the first half of an IPv6 one."""
    text = str(peer[0]) if isinstance(peer, tuple) and peer else str(peer or "")
    if ":" not in text:
        return text
    try:
        address = ipaddress.IPv6Address(text.partition("%")[0])
    except ValueError:
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_PREFIX_BITS), strict=False))
