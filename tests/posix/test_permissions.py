"""The file API and S3 share the policies of buckets: what they allow to others, and what they deny to owners."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.access.actions import ACTIONS, ActionKind
from gateway.engine.types import ByteRange, ObjectMeta
from gateway.posix.api import FileApi, parameters
from gateway.posix.fsspec.filesystem import EntrepotFileSystem
from gateway.posix.permissions import NEEDS, needs_of
from tests.endpoint import Endpoint
from tests.site.running import client, entrepot

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "buckets": ("",), "bucket": ("b",), "make_bucket": ("b",), "drop_bucket": ("b",), "look": ("b", b"k"),
    "page": ("b", b"k", b"/", b""), "open": ("b", b"k", ByteRange(0, 1), None),
    "put": ("b", b"k", None, 1, ObjectMeta({}, {"a": "b"}), None), "copy": ("b", b"k", "c", b"k", None, None),
    "move": ("b", b"k", "c", b"k"), "remove": ("b", [b"k", b"l"]), "rename": ("b", b"k", b"l"), "mkdir": ("b", b"k"),
    "rmdir": ("b", b"k"), "begin_upload": ("b", b"k", ObjectMeta({}, {})), "put_part": ("b", b"k", "u", 1, None, 1),
    "copy_part": ("b", b"k", "u", 1, b"l", ByteRange(0, 1), "e"), "tags": ("b", b"k"), "parts": ("b", b"k"),
    "complete_upload": ("b", b"k", "u", [], None), "abort_upload": ("b", b"k", "u"),
}  # fmt: skip
NAMED: dict[str, dict[str, Any]] = {"remove": {"must_exist": True}, "rename": {"directory": False}}
WITHOUT_NEEDS = {"buckets", "make_bucket"}


def test_each_method_has_needs_that_policies_may_name() -> None:
    assert set(NEEDS) == FileApi.__abstractmethods__ - {"compound"} == set(ARGUMENTS)
    for method, arguments in ARGUMENTS.items():
        needs = [need for each in needs_of(method, arguments, NAMED.get(method, {})) for need in each]
        assert bool(needs) == (method not in WITHOUT_NEEDS), method
        for need in needs:
            assert ACTIONS[need.action] is (ActionKind.BUCKET if need.key is None else ActionKind.OBJECT)


def test_needs_are_the_same_for_arguments_by_name() -> None:
    for method, arguments in ARGUMENTS.items():
        named = NAMED.get(method, {})
        by_name = dict(zip(parameters(method)[0], arguments, strict=True)) | named
        assert needs_of(method, (), by_name) == needs_of(method, arguments, named), method


def test_both_ends_of_a_copy_and_each_key_that_is_removed_need_permissions() -> None:
    def needed(method: str, *arguments: Any, **named: Any) -> set[tuple[str, str, bytes | None]]:
        return {need[:3] for each in needs_of(method, arguments, named) for need in each}

    assert needed("remove", "b", [b"k", b"l"], must_exist=False) == {
        ("s3:DeleteObject", "b", b"k"),
        ("s3:DeleteObject", "b", b"l"),
    }
    assert needed("move", "b", b"k", "c", b"l") == {
        ("s3:GetObject", "b", b"k"),
        ("s3:DeleteObject", "b", b"k"),
        ("s3:PutObject", "c", b"l"),
    }
    assert needed("copy", "b", b"k", "c", b"l") >= {("s3:GetObject", "b", b"k"), ("s3:PutObject", "c", b"l")}


# --- over HTTP ------------------------------------------------------------------------------------------------------


class Shared:
    """A bucket of Olga's, and the file systems of Olga and of a guest."""

    def __init__(self, endpoint: Endpoint, bucket: str) -> None:
        olga, guest = (entrepot(endpoint, "user", "add", f"{bucket}-{name}") for name in ("olga", "guest"))
        self.bucket, self.guest_name = bucket, guest["user"]
        self.s3 = client(endpoint, olga["access_key"], olga["secret_key"])
        self.s3.create_bucket(Bucket=bucket)
        self.olga, self.guest = (
            EntrepotFileSystem(endpoint=endpoint.url, key=each["access_key"], secret=each["secret_key"])
            for each in (olga, guest)
        )

    def policy(self, *statements: dict[str, Any]) -> None:
        document = {"Version": "2012-10-17", "Statement": list(statements)}
        self.s3.put_bucket_policy(Bucket=self.bucket, Policy=json.dumps(document))

    def statement(self, effect: str, actions: list[str], resource: str, **more: Any) -> dict[str, Any]:
        arn = f"arn:aws:s3:::{self.bucket}{resource}"
        names = [f"s3:{each}" for each in actions]
        principal = "*" if effect == "Deny" else {"AWS": self.guest_name}
        return {"Effect": effect, "Principal": principal, "Action": names, "Resource": arn} | more


@pytest.fixture
def shared(served: Endpoint, request: pytest.FixtureRequest) -> Iterator[Shared]:
    made = Shared(served, f"shared-{abs(hash(request.node.name)) % 10**9}")
    yield made
    made.olga.close()
    made.guest.close()


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises(PermissionError):
        call()


def test_a_guest_reads_and_lists_what_a_policy_allows_and_changes_nothing(shared: Shared) -> None:
    bucket, guest = shared.bucket, shared.guest
    shared.olga.pipe({f"{bucket}/docs/a": b"a", f"{bucket}/docs/b/c": b"c", f"{bucket}/secret": b"s"})
    refused(lambda: guest.cat(f"{bucket}/docs/a"))
    shared.policy(
        shared.statement("Allow", ["GetObject"], "/docs/*"),
        shared.statement("Allow", ["ListBucket"], "", Condition={"StringLike": {"s3:prefix": ["docs", "docs/*"]}}),
    )
    assert guest.cat(f"{bucket}/docs/a") == b"a"
    assert sorted(guest.ls(f"{bucket}/docs", detail=False)) == [f"{bucket}/docs/a", f"{bucket}/docs/b"]
    assert guest.info(f"{bucket}/docs/b")["type"] == "directory"
    for call in (
        lambda: guest.cat(f"{bucket}/secret"),
        lambda: guest.cat(f"{bucket}/missing"),
        lambda: guest.ls(bucket),
        lambda: guest.pipe(f"{bucket}/docs/new", b"x"),
        lambda: guest.rm_file(f"{bucket}/docs/a"),
        lambda: guest.mv(f"{bucket}/docs/a", f"{bucket}/docs/z"),
        lambda: guest.mv(f"{bucket}/docs/b", f"{bucket}/docs/z", recursive=True),
        lambda: guest.cp_file(f"{bucket}/docs/a", f"{bucket}/docs/z"),
        lambda: guest.mkdir(f"{bucket}/docs/new", create_parents=False),
        lambda: guest.rmdir(f"{bucket}/docs/b"),
    ):
        refused(call)
    assert sorted(shared.olga.find(bucket)) == [f"{bucket}/docs/a", f"{bucket}/docs/b/c", f"{bucket}/secret"]


def test_a_guest_writes_where_a_policy_allows_it(shared: Shared) -> None:
    bucket, guest = shared.bucket, shared.guest
    shared.policy(shared.statement("Allow", ["PutObject", "GetObject", "DeleteObject"], "/in/*"))
    guest.pipe(f"{bucket}/in/a", b"a")
    guest.mv(f"{bucket}/in/a", f"{bucket}/in/b")
    refused(lambda: guest.mv(f"{bucket}/in/b", f"{bucket}/out"))
    guest.rm_file(f"{bucket}/in/b")
    assert shared.olga.find(bucket) == []


def test_what_a_policy_denies_is_denied_to_the_owner_too(shared: Shared) -> None:
    bucket, olga = shared.bucket, shared.olga
    olga.pipe({f"{bucket}/kept/a": b"a", f"{bucket}/other": b"o"})
    shared.policy(shared.statement("Deny", ["DeleteObject", "PutObject"], "/kept/*"))
    for call in (
        lambda: olga.rm_file(f"{bucket}/kept/a"),
        lambda: olga.pipe(f"{bucket}/kept/a", b"changed"),
        lambda: olga.mv(f"{bucket}/kept", f"{bucket}/gone", recursive=True),
        lambda: olga.cp_file(f"{bucket}/other", f"{bucket}/kept/a"),
    ):
        refused(call)
    assert olga.cat(f"{bucket}/kept/a") == b"a"
    olga.rm_file(f"{bucket}/other")


def test_conditions_see_the_request_of_the_file_api(shared: Shared) -> None:
    bucket, guest = shared.bucket, shared.guest
    shared.olga.pipe(f"{bucket}/a", b"a")
    for network, allowed in (("127.0.0.0/8", True), ("10.0.0.0/8", False)):
        shared.policy(
            shared.statement("Allow", ["GetObject"], "/*", Condition={"IpAddress": {"aws:SourceIp": network}})
        )
        if allowed:
            assert guest.cat(f"{bucket}/a") == b"a"
        else:
            refused(lambda: guest.cat(f"{bucket}/a"))
