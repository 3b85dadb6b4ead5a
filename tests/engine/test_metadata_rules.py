"""The limits of metadata and tags, which the S3 API and the file API share."""

from __future__ import annotations

import pytest

from gateway.engine.metadata_rules import is_tag_name, is_tag_value, user_metadata_bytes


@pytest.mark.parametrize(("name", "valid"), [("a", True), ("", False), ("n" * 128, True), ("n" * 129, False),
                                              ("aws:a", False), ("ä b+-=.:/@_", True), ("a?", False)])  # fmt: skip
def test_a_tag_name_is_short_and_has_no_special_characters(name: str, valid: bool) -> None:
    assert is_tag_name(name) is valid


@pytest.mark.parametrize(("value", "valid"), [("", True), ("v" * 256, True), ("v" * 257, False), ("a&b", False)])
def test_a_tag_value_may_be_empty(value: str, valid: bool) -> None:
    assert is_tag_value(value) is valid


def test_user_metadata_counts_its_name_without_prefix_and_its_value_in_utf8() -> None:
    assert user_metadata_bytes("x-amz-meta-city", "Zürich") == 4 + 7
    assert user_metadata_bytes("content-type", "text/plain") == 0
