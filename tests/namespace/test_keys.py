"""Keys as paths, and names as POSIX spells them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidKey
from gateway.namespace import keys, posix_names

raw_keys = st.lists(st.sampled_from([b"a", b"/", b"\xff", b"%%", b".", b"\0", b"~", b"%%n", b"%25"]), max_size=9).map(
    b"".join
) | st.binary(max_size=40)
bases = raw_keys.map(lambda key: key.replace(b"/", b"")) | st.binary(min_size=250, max_size=1024).map(
    lambda name: name.replace(b"/", b"_")
)


@given(raw_keys)
def test_a_key_is_the_join_of_its_names(key):
    names = keys.split(key)
    assert keys.join(names) == key
    assert all(name.endswith(b"/") and name.count(b"/") == 1 for name in names[:-1]) and b"/" not in names[-1]


@given(raw_keys, raw_keys)
def test_names_in_order_are_keys_in_order(one, other):
    assert (keys.split(one) < keys.split(other)) == (one < other)


@given(raw_keys, raw_keys)
def test_the_successor_is_the_least_behind_all_that_begin_so(prefix, key):
    following = keys.successor(prefix)
    key_after = key > prefix and not key.startswith(prefix)
    assert key_after == (following is not None and key >= following)


def test_a_key_has_1_to_1024_bytes():
    assert keys.check_new_key(b"x" * 1024)
    for key in (b"", b"x" * 1025):
        with pytest.raises(InvalidKey):
            keys.check_new_key(key)


@given(bases, st.booleans())
def test_every_name_has_a_posix_spelling_that_leads_back(base, beside):
    name = posix_names.escape_name(base, beside=beside)
    assert (
        0 < len(name) <= posix_names.NAME_BYTES and b"/" not in name and b"\0" not in name and name not in (b".", b"..")
    )
    meant = posix_names.unescape_name(name)
    assert meant.matches_name(base) and meant.beside == beside
    assert bool(meant.digest) or meant.base == base


@given(bases, bases, st.booleans(), st.booleans())
def test_two_names_never_share_a_spelling(one, other, beside, other_beside):
    if (one, beside) != (other, other_beside):
        assert posix_names.escape_name(one, beside=beside) != posix_names.escape_name(other, beside=other_beside)


@given(bases)
def test_a_name_that_looks_like_an_escape_is_escaped(base):
    spelled = posix_names.escape_name(base)
    again = posix_names.escape_name(spelled)
    assert posix_names.unescape_name(again).matches_name(spelled)
    assert again == spelled or spelled != base


def test_usual_names_are_spelled_as_they_are():
    for base in (b"a", b"%", b"%%", b"%%x", "ü".encode(), b"\xff\xfe", b"x" * 255, b"..."):
        assert posix_names.escape_name(base) == base
    assert posix_names.escape_name(b".") == b"%%n%2E" and posix_names.escape_name(b"a", beside=True) == b"%%oa"
