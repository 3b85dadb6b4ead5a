"""Every error of the core, and every code of S3's, has its row."""

from __future__ import annotations

import logging
from xml.etree import ElementTree

import pytest

from backends import errors as backend_errors
from gateway import errors as core
from gateway.blocks.inline.values import InlineValues
from gateway.identity import signature_errors
from s3api.codes import CODES
from s3api.errors import S3Error
from s3api.format.error_response import ERROR_TABLE, error_xml, translate_error
from tests.s3api.client import Signer


def every(root: type[Exception]) -> list[type[Exception]]:
    """The tree below *root*, without what other tests made up, and without what a site adds for operators: a request is
    answered with the row of its base there."""
    ours = [child for child in root.__subclasses__() if not child.__module__.startswith(("tests.", "gateway.site."))]
    return [root, *(each for child in ours for each in every(child))]


def test_every_class_of_the_cores_tree_has_a_row():
    assert set(ERROR_TABLE) == set(every(core.EntrepotError))


def test_every_row_names_a_code_that_is_known():
    assert {row.code for row in ERROR_TABLE.values()} <= set(CODES)


def test_every_code_of_a_signature_error_is_known():
    assert {each.code for each in every(signature_errors.SignatureError)} <= set(CODES)


@pytest.mark.parametrize("kind", sorted(ERROR_TABLE, key=lambda each: each.__name__))
@pytest.mark.parametrize("arguments", [(), ("one",), (b"\xff<", "two", "three")])
def test_an_error_with_whatever_arguments_becomes_xml(kind, arguments):
    failure = translate_error(kind(*arguments))
    document = ElementTree.fromstring(error_xml(failure, "/b/k", "ID", "HOST"))
    assert document.findtext("Code") == failure.code
    assert document.findtext("Message")
    assert failure.status >= 300


@pytest.mark.parametrize(
    ("error", "code", "said", "unsaid"),
    [
        (core.Unavailable("http://10.0.0.1:9000/b: refused"), "ServiceUnavailable", "storage backend", "10.0.0.1"),
        (core.CommitterGone("nobody commits to /srv/site"), "ServiceUnavailable", "journal", "/srv"),
        (core.SessionExpired(4711), "ServiceUnavailable", "is unknown", "4711"),
        (core.Corrupted("disk: block 0a1b"), "InternalError", "damaged", "0a1b"),
        (core.SourceChanged("The source changed."), "ServiceUnavailable", "The source changed.", "full"),
        (core.Busy("bytes in flight"), "SlowDown", "reduce your request rate", "backend"),
        (core.DiskFull("/srv: 3 bytes"), "InsufficientStorage", "only deletions", "/srv"),
    ],
)
def test_only_who_asks_too_much_is_told_to_slow_down(error, code, said, unsaid):
    failure = translate_error(error)
    assert failure.code == code
    assert said in failure.message
    assert unsaid not in failure.message
    assert ("reduce your request rate" in failure.message) == (code == "SlowDown")


async def test_a_write_without_its_backend_says_that_the_backend_is_unavailable(site, signer, monkeypatch):
    async def refused(*_arguments, **_named):
        raise backend_errors.Unavailable("connection refused", backend="disk")

    target = site.engine._write_targets.default.copies[0].backend
    monkeypatch.setattr(type(target), "put", refused)
    monkeypatch.setattr(InlineValues, "attach", lambda *_: False)
    reply = await signer.request("PUT", "/bucket/k", body=b"x")
    assert (reply.status, reply.code) == (503, "ServiceUnavailable")
    assert "storage backend" in reply.xml("Message")
    assert b"disk" not in reply.body
    assert b"reduce" not in reply.body


def test_a_bug_says_nothing_of_itself_to_the_client():
    failure = translate_error(ValueError("the secret inside"))
    assert (failure.code, failure.status) == ("InternalError", 500)
    assert "secret" not in failure.message


def test_a_signed_hash_that_differs_is_not_called_an_md5():
    assert translate_error(core.BadDigest("0" * 64, "1" * 64)).code == "XAmzContentSHA256Mismatch"
    assert translate_error(core.BadDigest("q" * 24, "r" * 24)).code == "BadDigest"


def test_a_delete_marker_is_absent_by_name_and_not_allowed_by_version():
    error = core.DeleteMarker(b"key", "v01", True, 784111777_000_000_000)
    absent = translate_error(error, version_asked=False)
    assert absent.status == 404
    asked = translate_error(error, version_asked=True)
    assert asked.status == 405
    assert absent.headers == "x-amz-delete-marker: true\r\nx-amz-version-id: v01\r\n"
    assert asked.headers == absent.headers + "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nAllow: DELETE\r\n"
    assert "Last-Modified" not in translate_error(core.DeleteMarker(b"key", "v01", True), version_asked=True).headers


def test_an_error_of_the_protocols_own_keeps_its_elements():
    failure = translate_error(S3Error("InvalidArgument", "no", ArgumentName="<max-keys>"))
    assert b"<ArgumentName>&lt;max-keys&gt;</ArgumentName>" in error_xml(failure, "/", "", "")


async def test_a_bug_is_a_500_with_its_request_id_in_the_log(site, caplog):
    async def broken(*_arguments):
        raise ZeroDivisionError("deep inside")

    site.engine.head_bucket = broken
    with caplog.at_level(logging.ERROR):
        answer = await Signer(site).request("GET", "/bucket", "location")
    assert answer.status == 500
    assert answer.code == "InternalError"
    assert b"deep inside" not in answer.body
    assert answer.headers["x-amz-request-id"] in caplog.text
    assert "deep inside" in caplog.text


def test_an_error_that_a_site_adds_is_answered_with_the_row_of_its_base():
    class Added(core.Misconfigured, wire_code="Added"):
        """As `gateway.site.storage.agreement.HistoriesDiverged`, which the table of this layer cannot name."""

    assert translate_error(Added("another copy goes on")) == translate_error(core.Misconfigured("another copy goes on"))
