"""Every error of `gateway.errors` has an errno."""

from __future__ import annotations

import errno

import pytest

from gateway.errors import BY_WIRE_CODE, AccessDenied, CommitterGone, DirectoryNotEmpty, NoSuchKey
from gateway.posix.errnos import ERRNO, os_error, os_errors


def test_each_class_of_the_tree_has_a_row_of_its_own():
    assert set(BY_WIRE_CODE.values()) == set(ERRNO)


def test_an_error_becomes_the_class_that_python_has_for_it():
    assert isinstance(os_error(NoSuchKey(b"k"), "b/k"), FileNotFoundError)
    assert isinstance(os_error(AccessDenied("no"), "b/k"), PermissionError)
    assert os_error(DirectoryNotEmpty(b"d"), "b/d").errno == errno.ENOTEMPTY


def test_an_error_says_what_and_where():
    assert str(os_error(NoSuchKey(b"k"), "b/k")) == "[Errno 2] No such file or directory: 'b/k'"
    assert "nobody commits" in str(os_error(CommitterGone("nobody commits"), "b/k"))


def test_what_was_raised_is_kept_as_the_cause():
    with pytest.raises(FileNotFoundError) as return_error, os_errors("b/k"):
        raise NoSuchKey(b"k")
    assert isinstance(return_error.value.__cause__, NoSuchKey)
