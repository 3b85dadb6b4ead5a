"""docs/s3.md says what is spoken: held against the SDK's own list of S3's operations, and against what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest

from s3api.errors import S3Error
from s3api.format import unsupported
from s3api.operations import ROUTES
from s3api.routing import SUBRESOURCES

PAGE = (Path(__file__).parents[2] / "docs" / "s3.md").read_text()
UNBUILT = PAGE.partition("### Operations")[2].partition("### Headers")[0]
SCOPES = {"/": "service", "/{Bucket}": "bucket", "/{Bucket}/{Key+}": "object"}
ELSEWHERE = {"ListDirectoryBuckets", "WriteGetObjectResponse"}
"""Operations of endpoints of their own, which this one cannot tell from others."""
OLDER_NAMES = {
    "BucketLifecycle": "BucketLifecycleConfiguration",
    "BucketNotification": "BucketNotificationConfiguration",
}


def operations() -> Iterator[tuple[str, str, str, dict[str, str], dict[str, str]]]:
    """S3's operations: name, method, scope, and the parameters and headers that each must have."""
    model = botocore.session.get_session().get_service_model("s3")
    for name in model.operation_names:
        operation = model.operation_model(name)
        path, _, raw = operation.http["requestUri"].partition("?")
        query = dict(each.partition("=")[::2] for each in raw.split("&") if each)
        headers = {}
        for member in operation.input_shape.required_members if operation.input_shape else ():
            where = operation.input_shape.members[member].serialization
            if where.get("location") == "querystring":
                query[where["name"]] = "1"
            elif where.get("location") == "header":
                headers[where["name"].lower()] = "x"
        yield name, operation.http["method"], SCOPES.get(path, path), query, headers


def spelled(operation: str) -> str:
    """An operation's newer name, where it has an older one too; one of a family by its list."""
    verb, noun = re.fullmatch(r"(Get|Put|Delete|List|[A-Z][a-z]+)(.*)", operation).groups()  # type: ignore[union-attr]
    return verb + OLDER_NAMES.get(noun, noun)


def test_every_operation_of_s3_is_built_or_listed_as_not():
    listed = {
        each
        for cell in re.findall(r"\| ([^|]*) \|$", UNBUILT, re.MULTILINE)
        for each in re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", cell)
    }
    missing = []
    for name, method, scope, query, headers in operations():
        row = ROUTES.find(method, scope, query, headers)
        family = row.operation.removeprefix("List").removesuffix("s")
        if row.operation == "Unknown":
            missing.append(name)
        elif name not in ELSEWHERE and not name.endswith(family):
            assert row.operation == spelled(name)
    assert {spelled(name) for name in missing} - ELSEWHERE == listed


def test_a_sub_resource_that_s3_has_never_means_the_plain_operation():
    modifiers = {"select-type", "list-type", "id", "x-id"}
    for name, _, _, query, _ in operations():
        if query.keys() - modifiers and name not in ELSEWHERE:
            assert SUBRESOURCES & query.keys(), name


@pytest.mark.parametrize("header", sorted({*unsupported._UNSUPPORTED_HEADERS, *unsupported._DEFAULTS}))
def test_every_header_that_is_refused_is_listed(header):
    with pytest.raises(S3Error) as caught:
        unsupported.check_headers({header: "public-read" if header == "x-amz-acl" else "another"}, sealed=True)
    assert caught.value.code == "NotImplemented"
    assert re.search("|".join(re.escape(part) for part in _spellings(header)), PAGE), header


def _spellings(header: str) -> Iterator[str]:
    yield f"`{header}`"
    yield f"`{header}:"
    parts = header.split("-")
    for count in range(3, len(parts)):
        yield "`" + "-".join(parts[:count]) + "-…`"
