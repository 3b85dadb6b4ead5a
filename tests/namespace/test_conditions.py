"""Preconditions, one rule at a time."""

from __future__ import annotations

import pytest

from gateway.errors import NoSuchKey, NotModified, PreconditionFailed
from gateway.namespace.conditions import SECOND_NS, ObjectState, Preconditions, check_read, check_source, check_write

NOW = 1_700_000_000 * SECOND_NS
SEEN = ObjectState("e", 10, NOW + 5)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (Preconditions(if_match=("e",)), None),
        (Preconditions(if_match=("x", "*")), None),
        (Preconditions(if_match=("x",)), PreconditionFailed),
        (Preconditions(if_none_match=("x",)), None),
        (Preconditions(if_none_match=("*",)), NotModified),
        (Preconditions(if_unmodified_since_ns=NOW), None),
        (Preconditions(if_unmodified_since_ns=NOW - SECOND_NS), PreconditionFailed),
        (Preconditions(if_match=("e",), if_unmodified_since_ns=0), None),
        (Preconditions(if_modified_since_ns=NOW), NotModified),
        (Preconditions(if_modified_since_ns=NOW - SECOND_NS), None),
        (Preconditions(if_none_match=("x",), if_modified_since_ns=NOW), None),
    ],
)
def test_a_read_is_judged_in_the_order_of_rfc_9110(asked, error):
    if error is None:
        check_read(asked, SEEN)
        check_source(asked, SEEN)
    else:
        with pytest.raises(error):
            check_read(asked, SEEN)
        with pytest.raises(PreconditionFailed):
            check_source(asked, SEEN)


@pytest.mark.parametrize(
    ("asked", "there", "error"),
    [
        (Preconditions(if_match=("e",)), True, None),
        (Preconditions(if_match=("x",)), True, PreconditionFailed),
        (Preconditions(if_match=("*",)), False, NoSuchKey),
        (Preconditions(if_none_match=("*",)), True, PreconditionFailed),
        (Preconditions(if_none_match=("*",)), False, None),
        (Preconditions(if_size=10, if_modified_at_ns=NOW), True, None),
        (Preconditions(if_size=11), True, PreconditionFailed),
        (Preconditions(if_modified_at_ns=NOW + SECOND_NS), True, PreconditionFailed),
        (Preconditions(if_size=10), False, NoSuchKey),
    ],
)
def test_a_write_is_judged_as_s3_does(asked, there, error):
    if error is None:
        check_write(asked, b"k", SEEN if there else None)
    else:
        with pytest.raises(error):
            check_write(asked, b"k", SEEN if there else None)
