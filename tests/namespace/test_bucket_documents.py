"""Documents of buckets, such as CORS rules: stored by kind, replaced, removed, and deleted with their bucket."""

from __future__ import annotations

import pytest

from gateway.errors import AccessDenied, InvalidArgument, NoSuchBucket
from gateway.journal.tables import DocumentKind
from gateway.namespace.commands.buckets import (
    DOCUMENT_BYTES_MAX,
    DropBucket,
    RemoveBucketDocument,
    SetBucketDocument,
)
from gateway.namespace.commands.uploads import CreateUpload
from gateway.namespace.read import lookups
from tests.namespace.world import USER, World

CORS, TAGS = int(DocumentKind.CORS), int(DocumentKind.TAGGING)


def documents(world: World) -> dict[int, bytes]:
    found = lookups.bucket_summary(world.mirror, "b")
    assert found is not None
    return dict(found.documents)


def test_a_bucket_has_a_document_of_each_kind_and_a_new_one_replaces_the_former(world: World) -> None:
    assert documents(world) == {}
    world.run(SetBucketDocument("b", USER, False, CORS, b"first"))
    world.run(SetBucketDocument("b", USER, False, TAGS, b"tags"))
    world.run(SetBucketDocument("b", USER, False, CORS, b"second"))
    assert documents(world) == {CORS: b"second", TAGS: b"tags"}


def test_a_document_can_be_removed_more_than_once(world: World) -> None:
    world.run(SetBucketDocument("b", USER, False, CORS, b"rules"))
    world.run(SetBucketDocument("b", USER, False, TAGS, b"tags"))
    for _ in range(2):
        world.run(RemoveBucketDocument("b", USER, False, CORS))
    assert documents(world) == {TAGS: b"tags"}
    world.run(RemoveBucketDocument("b", USER, False, TAGS))
    assert not world.rows.tables["bucket_documents"]


def test_the_same_document_again_writes_nothing(world: World) -> None:
    world.run(SetBucketDocument("b", USER, False, CORS, b"rules"))
    before = len(world.records)
    world.run(SetBucketDocument("b", USER, False, CORS, b"rules"))
    assert len(world.records) == before


@pytest.mark.parametrize("uploads", [False, True])
def test_documents_are_deleted_with_their_bucket(world: World, uploads: bool) -> None:
    world.run(SetBucketDocument("b", USER, False, CORS, b"rules"))
    if uploads:
        world.run(CreateUpload("b", b"k", USER, False, "", "", b"", b""))
    world.run(DropBucket("b", USER, False, "alice"))
    assert not world.rows.tables["bucket_documents"]


@pytest.mark.parametrize("document", [b"", b"x" * (DOCUMENT_BYTES_MAX + 1)])
def test_an_empty_or_too_long_document_is_refused(world: World, document: bytes) -> None:
    with pytest.raises(InvalidArgument, match="document of"):
        world.run(SetBucketDocument("b", USER, False, CORS, document))


def test_an_unknown_kind_a_missing_bucket_and_another_user_are_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="kind 99"):
        world.run(SetBucketDocument("b", USER, False, 99, b"x"))
    with pytest.raises(NoSuchBucket):
        world.run(SetBucketDocument("nowhere", USER, False, CORS, b"x"))
    with pytest.raises(AccessDenied):
        world.run(RemoveBucketDocument("b", USER + 1, False, CORS))
