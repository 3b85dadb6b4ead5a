"""Wraps ring keys and users' secrets under a master key. Pure except for random numbers.

    wrapped = nonce (12 bytes), AES-256-GCM(HKDF(master key, purpose), nonce, secret, associated data), tag

A wrapped ring key contains 33 bytes: the mode in which its blocks are sealed, and 32 bytes of key. So a change of mode
needs a new ring key, and a reader of a block gets its mode from a trusted place. The associated data names the owner of
the secret, so a wrapped value that was moved to another row does not unwrap.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway.crypto.master import MasterKey
from gateway.crypto.sealing import ENCRYPTED, TAGGED
from gateway.errors import Corrupted

NONCE_BYTES = 12
KEY_BYTES = 32
_RING = b"entrepot ring 1"
_SECRET = b"entrepot secret 1"


class ActiveKey(NamedTuple):
    """An unwrapped ring key, with which blocks are sealed."""

    id: int
    key: bytes
    mode: int

    def __repr__(self) -> str:
        return f"ActiveKey({self.id:016x}, …, mode={self.mode})"


def new_ring_key(ring_key_id: int, mode: int = ENCRYPTED) -> ActiveKey:
    """Return a new random ring key."""
    return ActiveKey(ring_key_id, os.urandom(KEY_BYTES), mode)


def wrap_ring_key(master: MasterKey, key: ActiveKey, tenant: str) -> bytes:
    """Wrap *key* of *tenant* for the journal."""
    return _wrap(master, _RING, bytes([key.mode]) + key.key, _ring_name(key.id, tenant))


def unwrap_ring_key(master: MasterKey, ring_key_id: int, tenant: str, wrapped: bytes) -> ActiveKey:
    """Unwrap a ring key. Raises `Corrupted` if it was not wrapped under *master* for that id and tenant."""
    plain = _unwrap(master, _RING, wrapped, _ring_name(ring_key_id, tenant), f"ring key {ring_key_id:016x}")
    if len(plain) != 1 + KEY_BYTES or plain[0] not in (ENCRYPTED, TAGGED):
        raise Corrupted(f"ring key {ring_key_id:016x} has a format that this version does not know")
    return ActiveKey(ring_key_id, plain[1:], plain[0])


def seal_secret(master: MasterKey, access_key: str, secret: str) -> bytes:
    """Wrap a user's secret key for the journal."""
    return _wrap(master, _SECRET, secret.encode(), access_key.encode())


def open_secret(master: MasterKey, access_key: str, sealed: bytes) -> str:
    """Unwrap a user's secret key. Raises `Corrupted` if it was not wrapped under *master* for that access key."""
    return _unwrap(master, _SECRET, sealed, access_key.encode(), f"the secret of {access_key}").decode()


def _ring_name(ring_key_id: int, tenant: str) -> bytes:
    return ring_key_id.to_bytes(8, "big") + tenant.encode()


def _wrapping(master: MasterKey, purpose: bytes) -> AESGCM:
    return AESGCM(HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(master.key))


def _wrap(master: MasterKey, purpose: bytes, plain: bytes, name: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _wrapping(master, purpose).encrypt(nonce, plain, name)


def _unwrap(master: MasterKey, purpose: bytes, wrapped: bytes, name: bytes, what: str) -> bytes:
    nonce, sealed = wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:]
    try:
        return _wrapping(master, purpose).decrypt(nonce, sealed, name)
    except (InvalidTag, ValueError):
        raise Corrupted(f"{what} does not open under master key {master.id}") from None
