"""The key ring and the master key file: what is wrapped opens for its owner, in its place, and nowhere else."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.crypto import master, ring
from gateway.crypto.master import MasterKey
from gateway.crypto.sealing import ENCRYPTED, TAGGED
from gateway.errors import Corrupted, Misconfigured

ONE = MasterKey("one", bytes(range(32)))
OTHER = MasterKey("other", bytes(range(1, 33)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "master.key"


@pytest.mark.parametrize("mode", [ENCRYPTED, TAGGED])
def test_a_ring_key_comes_back_with_its_mode(mode: int) -> None:
    key = ring.new_ring_key(42, mode)
    assert ring.unwrap_ring_key(ONE, 42, "default", ring.wrap_ring_key(ONE, key, "default")) == key


def test_a_ring_key_opens_under_no_other_master_key_id_or_tenant() -> None:
    wrapped = ring.wrap_ring_key(ONE, ring.new_ring_key(42), "default")
    for where in ((OTHER, 42, "default"), (ONE, 43, "default"), (ONE, 42, "another")):
        with pytest.raises(Corrupted, match="does not open under master key"):
            ring.unwrap_ring_key(*where, wrapped)


@given(bit=st.integers(0, 8 * (12 + 33 + 16) - 1))
def test_a_flipped_bit_in_a_wrapped_ring_key_is_refused(bit: int) -> None:
    wrapped = bytearray(ring.wrap_ring_key(ONE, ring.new_ring_key(42), "default"))
    wrapped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corrupted):
        ring.unwrap_ring_key(ONE, 42, "default", bytes(wrapped))


@pytest.mark.parametrize("length", [0, 5, 12, 27, 28])
def test_a_short_wrapped_ring_key_is_refused(length: int) -> None:
    wrapped = ring.wrap_ring_key(ONE, ring.new_ring_key(42), "default")
    with pytest.raises(Corrupted):
        ring.unwrap_ring_key(ONE, 42, "default", wrapped[:length])


def test_ring_keys_are_drawn_anew_and_wrapped_anew_each_time() -> None:
    key = ring.new_ring_key(42)
    assert key.key != ring.new_ring_key(42).key
    assert ring.wrap_ring_key(ONE, key, "default") != ring.wrap_ring_key(ONE, key, "default")


@given(secret=st.text(st.characters(codec="utf-8"), max_size=128))
def test_a_secret_opens_only_for_its_access_key(secret: str) -> None:
    wrapped = ring.seal_secret(ONE, "EKAAAA", secret)
    assert ring.open_secret(ONE, "EKAAAA", wrapped) == secret
    with pytest.raises(Corrupted, match="the secret of EKBBBB"):
        ring.open_secret(ONE, "EKBBBB", wrapped)
    with pytest.raises(Corrupted):
        ring.open_secret(OTHER, "EKAAAA", wrapped)


def test_what_was_wrapped_for_one_purpose_does_not_open_for_another() -> None:
    """A ring key's name could be spelt as an access key: the purpose keeps the two apart."""
    wrapped = ring.wrap_ring_key(ONE, ring.new_ring_key(int.from_bytes(b"ABCDEFGH", "big")), "")
    with pytest.raises(Corrupted):
        ring.open_secret(ONE, "ABCDEFGH", wrapped)


def test_a_key_is_never_printed(path: Path) -> None:
    key = ring.new_ring_key(42)
    assert repr(key.key) not in repr(key)
    current = master.create(path).current
    assert repr(current.key) not in repr(current)


def test_the_master_key_file_is_for_its_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        made = master.create(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert master.load(path).current == made.current
    assert [each.name for each in path.parent.iterdir()] == ["master.key"], "nothing is left beside it"


def test_a_master_key_file_is_never_written_over(path: Path) -> None:
    made = master.create(path)
    with pytest.raises(FileExistsError):
        master.create(path)
    assert master.load(path).current == made.current
    assert [each.name for each in path.parent.iterdir()] == ["master.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o644])
def test_a_master_key_file_that_others_may_touch_is_refused_and_says_what_to_do(path: Path, mode: int) -> None:
    master.create(path)
    path.chmod(mode)
    with pytest.raises(Misconfigured, match="chmod 600"):
        master.load(path)


def test_an_added_key_is_current_and_the_old_one_still_unwraps(path: Path) -> None:
    old = master.create(path).current
    wrapped = ring.wrap_ring_key(old, ring.new_ring_key(42), "default")
    keys = master.add(path)
    assert keys.current.id != old.id
    assert len(keys) == 2
    assert keys.by_id(old.id) == old
    ring.unwrap_ring_key(keys.by_id(old.id), 42, "default", wrapped)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["master.key"]


def test_a_key_that_the_file_lost_is_named(path: Path) -> None:
    with pytest.raises(Misconfigured, match="no key 0123abcd"):
        master.create(path).by_id("0123abcd")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no key"),
        ("\n\n", "holds no key"),
        ("hello\n", "line 1"),
        (f"{master.WORD} a AAAA\n", "line 1 .* 32 bytes"),
        (f"{master.WORD} a {'A' * 43}=\n{master.WORD} b *{'A' * 42}=\n", "line 2 .* 32 bytes"),
        (f"{master.WORD} a {'A' * 43}=\n{master.WORD} b\n", "line 2 .* is not"),
        (f"{master.WORD} a {'A' * 43}=\n{master.WORD} a {'B' * 42}A=\n", "two keys of one id"),
        ("entrepot-master-key-2 a AAAA\n", "line 1"),
    ],
)
def test_a_malformed_master_key_file_is_refused_with_its_line(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(Misconfigured, match=said) as caught:
        master.load(path)
    assert str(path) in str(caught.value)


def test_an_absent_or_unreadable_master_key_file_says_so(path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be read"):
        master.load(path)
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    with pytest.raises(Misconfigured, match="cannot be read"):
        master.load(path)
