"""The pure parts: targets, routes, ranges, conditions, metadata, XML, tokens."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.types import ByteRange
from gateway.errors import InvalidBucketName
from gateway.namespace.bucket_names import check_bucket_name
from s3api.errors import S3Error
from s3api.format import metadata
from s3api.format.authority import destination, virtual_bucket
from s3api.format.conditions import byte_range, copy_range, etags, read_conditions, write_conditions
from s3api.format.copy_source import copy_source
from s3api.format.dates import http_date, parse_date
from s3api.format.listing_xml import format_keys, key_encoder
from s3api.format.request_target import parse_query, parse_target
from s3api.format.tokens import open_token, seal_token
from s3api.format.xml_reader import XmlReader, parse_xml
from s3api.format.xml_writer import escape, escape_bytes, url_encode
from s3api.operations import ROUTE_ROWS, ROUTES

# --- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "bucket", "key"),
    [
        ("/", "", b""),
        ("/b", "b", b""),
        ("/b/", "b", b""),
        ("/b/k", "b", b"k"),
        ("/b//k", "b", b"/k"),
        ("/b/a/../k", "b", b"a/../k"),
        ("/b/a/./k/", "b", b"a/./k/"),
        ("/b/a%2Fb", "b", b"a/b"),
        ("/b/%C3%A9%20+", "b", "é +".encode()),
        ("/b/%FF", "b", b"\xff"),
        ("/b/k?versionId=1&x=%26", "b", b"k"),
    ],
)
def test_a_target_means_what_it_says_and_is_not_normalised(raw, bucket, key):
    target = parse_target(raw)
    assert (target.bucket, target.key) == (bucket, key)


def test_a_bucket_that_the_host_names_leaves_the_whole_path_to_the_key():
    target = parse_target("//k", "photos")
    assert (target.bucket, target.key, target.virtual) == ("photos", b"/k", True)


@pytest.mark.parametrize("raw", ["//k", "*", "b/k", "ftp://x/b", "/b/k#f", "/b%2Fc/k", "/%C3%A9/k", "/b/k?a=1&a=1"])
def test_a_target_without_sense_is_refused(raw):
    with pytest.raises(S3Error):
        parse_target(destination(raw, "host", (1, 1)).origin)


@given(st.text(st.characters(blacklist_characters="#\x00"), max_size=40), st.text(max_size=20))
def test_any_target_is_parsed_or_refused(raw, host):
    try:
        origin = destination("/" + raw.encode("utf-8", "replace").decode(), host, (1, 1)).origin
        target = parse_target(origin, virtual_bucket(host, ("s3.test",)))
    except S3Error:
        return
    assert isinstance(target.key, bytes)


@given(st.dictionaries(st.text("abc-", min_size=1), st.text(string.printable)))
def test_a_query_comes_back_as_it_was_encoded(query):
    from urllib.parse import quote, quote_plus

    for spell in (quote, quote_plus):
        raw = "&".join(f"{spell(name)}={spell(value)}" for name, value in query.items())
        assert parse_query(raw) == query


@pytest.mark.parametrize("name", ["abc", "a-b.c-d", "1.2.3", "a" * 63, "0-0"])
def test_a_bucket_may_be_called(name):
    check_bucket_name(name)


@pytest.mark.parametrize(
    "name",
    ["ab", "a" * 64, "Abc", "a_b", "a..b", ".abc", "abc.", "-abc", "abc-", "a.-b", "1.2.3.4", "xn--abc", "abc-s3alias",
     "abc\n", "äbc", ""],
)  # fmt: skip
def test_a_bucket_may_not_be_called(name):
    with pytest.raises(InvalidBucketName):
        check_bucket_name(name)


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "scope", "query", "headers", "operation"),
    [
        ("PUT", "object", {}, {}, "PutObject"),
        ("PUT", "object", {"x-id": "PutObject"}, {}, "PutObject"),
        ("PUT", "object", {}, {"x-amz-copy-source": "b/k"}, "CopyObject"),
        ("PUT", "object", {"partNumber": "1", "uploadId": "u"}, {}, "UploadPart"),
        ("PUT", "object", {"partNumber": "1", "uploadId": "u"}, {"x-amz-copy-source": "b/k"}, "UploadPartCopy"),
        ("GET", "object", {"partNumber": "1"}, {}, "GetObject"),
        ("GET", "object", {"versionId": "1"}, {}, "GetObject"),
        ("GET", "bucket", {"list-type": "2"}, {}, "ListObjectsV2"),
        ("GET", "bucket", {"prefix": "acl"}, {}, "ListObjects"),
        ("GET", "bucket", {"acl": ""}, {}, "GetBucketAcl"),
        ("PUT", "object", {"restore": ""}, {}, "Unknown"),
        ("PUT", "object", {"uploadId": "u"}, {}, "Unknown"),
        ("DELETE", "service", {}, {}, "Unknown"),
    ],
)
def test_a_request_finds_its_operation(method, scope, query, headers, operation):
    assert ROUTES.find(method, scope, query, headers).operation == operation


def test_every_row_of_the_table_can_be_reached():
    for row in ROUTE_ROWS:
        query = {name: value for name, _, value in (each.partition("=") for each in row.query)}
        headers = {row.header: "x"} if row.header else {}
        found = ROUTES.find(row.method, row.scope, query, headers)
        assert found.operation == row.operation


# --- ranges and conditions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes=0-", ByteRange(0, None)),
        ("bytes=5-9", ByteRange(5, 9)),
        ("bytes=-7", ByteRange(None, 7)),
        ("Bytes = 5 - 9", ByteRange(5, 9)),
        ("bytes=9-5", None),
        ("bytes=0-1,4-5", None),
        ("items=0-1", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=٣-٥", None),
        ("", None),
    ],
)
def test_a_range_is_read_or_ignored(header, wanted):
    assert byte_range(header) == wanted


@given(st.text(max_size=60))
def test_no_range_header_surprises(header):
    for text in (header, "bytes=" + header):
        byte_range(text)
        try:
            copy_range(text)
        except S3Error as error:
            assert error.code == "InvalidArgument"


def test_entity_tags_are_read_in_every_spelling():
    assert etags('"a", W/"b" ,c', weak_match=True) == ("a", "b", "c")
    assert etags('W/"b"', weak_match=False) == ("W/b",)
    assert etags("*", weak_match=False) == ("*",)
    assert etags("", weak_match=False) == ("",)


@given(st.text(max_size=80))
def test_no_condition_header_surprises(text):
    headers = dict.fromkeys(("if-match", "if-none-match", "if-modified-since", "if-unmodified-since"), text)
    read_conditions(headers)
    try:
        write_conditions(headers)
    except S3Error as error:
        assert error.code == "NotImplemented"


def test_dates_are_read_in_all_three_forms_and_written_in_the_first():
    second = 784111777
    assert http_date(second) == "Sun, 06 Nov 1994 08:49:37 GMT"
    for text in (
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "1994-11-06T08:49:37Z",
    ):
        assert parse_date(text) == second * 10**9, text


@given(st.text(max_size=40))
def test_what_is_no_date_is_none(text):
    found = parse_date(text)
    assert found is None or isinstance(found, int)


# --- copies -----------------------------------------------------------------------------------------------------------


def test_a_copy_source_is_read_in_every_spelling():
    assert copy_source("b/a%2Fb%20c") == ("b", b"a/b c", None)
    assert copy_source("/b/k?versionId=x") == ("b", b"k", "x")
    assert copy_source("b/what%3FversionId=x") == ("b", b"what?versionId=x", None)
    assert copy_source("b/a+b%2Bc") == ("b", b"a b+c", None)
    for bad in ("", "/", "b", "b/", "/b/", "é/k", "b/k?versionId=a?b"):
        with pytest.raises(S3Error):
            copy_source(bad)


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_metadata_that_is_not_ascii_goes_out_as_rfc_2047_says():
    meta = metadata.object_meta({"x-amz-meta-city": "Zürich"})
    assert meta.headers["x-amz-meta-city"] == "Zürich"
    lines = metadata.meta_lines(meta.headers)
    assert "x-amz-meta-city: =?UTF-8?B?WsO8cmljaA==?=\r\n" in lines
    again = metadata.object_meta({"x-amz-meta-city": "=?UTF-8?B?WsO8cmljaA==?="})
    assert again.headers["x-amz-meta-city"] == "Zürich"


def test_a_word_that_would_decode_to_a_second_header_line_stays_as_it_came():
    word = "=?utf-8?q?a=0D=0AX:_b?="
    assert metadata.decode_words(word) == word


@given(st.text(max_size=200))
def test_whatever_metadata_says_it_stays_one_line(text):
    lines = metadata.meta_lines({"x-amz-meta-a": metadata.decode_words(text)})
    assert lines.count("\r\n") <= 1
    assert lines.isascii() or not text.isascii()


def test_metadata_beyond_two_kilobytes_is_refused():
    metadata.object_meta({"x-amz-meta-a": "v" * 2047})
    with pytest.raises(S3Error) as caught:
        metadata.object_meta({"x-amz-meta-a": "v" * 2048})
    assert caught.value.code == "MetadataTooLarge"


def test_how_the_bytes_travelled_is_not_kept():
    kept = metadata.object_meta({"content-encoding": "aws-chunked, gzip"}).headers
    assert kept["content-encoding"] == "gzip"
    assert "content-encoding" not in metadata.object_meta({"content-encoding": "aws-chunked"}).headers


def test_tags_have_limits():
    assert metadata.parse_tagging("a=1&b=%2B+x") == {"a": "1", "b": "+ x"}
    for bad in ("=1", "a=" + "v" * 257, "k" * 129 + "=1", "a=1&a=2", "aws:x=1", "a=%00"):
        with pytest.raises(S3Error):
            metadata.parse_tagging(bad)
    with pytest.raises(S3Error):
        metadata.parse_tagging("&".join(f"k{n}=v" for n in range(11)))


# --- XML --------------------------------------------------------------------------------------------------------------

BOMB = b"""<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;">]><Delete>&y;</Delete>"""


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<Delete>",
        b"<Other/>",
        BOMB,
        b"<!DOCTYPE Delete SYSTEM 'file:///etc/passwd'><Delete/>",
        b"<Delete>&undefined;</Delete>",
        b"<Delete>" + b"<a>" * 50 + b"</a>" * 50 + b"</Delete>",
        b"<Delete>" + b"<a/>" * 50_000 + b"</Delete>",
        b"<Delete>\xff</Delete>",
        b"<Delete " + b" ".join(b"a%d=''" % n for n in range(17)) + b"/>",
        b"<Delete " + b" ".join(b"xmlns:a%d='u'" % n for n in range(17)) + b"/>",
        b"<Delete><a x='" + b">" * 20_000 + b"'/></Delete>",
        b"<Delete><!--" + b"<a>" * 8_000 + b"--></Delete>",
        b"<Delete><?a " + b"<a>" * 8_000 + b"?></Delete>",
        b"<Delete><" + b"a" * 20_000 + b"/></Delete>",
        b"<Delete>&" + b"a" * 20_000 + b";</Delete>",
        b"<Delete>&#" + b"0" * 20_000 + b"65;</Delete>",
        b"<?xml version='1.0'" + b" " * 20_000 + b"?><Delete/>",
        b"<Delete><ETag>" + b"a" * 16_385 + b"</ETag></Delete>",
        b"<Delete><ETag>" + b"&amp;" * 16_385 + b"</ETag></Delete>",
        b"<Delete><ETag>a" + b" " * 16_385 + b"</ETag></Delete>",
        b"<Delete><Object>" + b"<a/>" * 129 + b"</Object></Delete>",
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_xml_that_no_client_needs_is_refused(raw):
    with pytest.raises(S3Error) as caught:
        parse_xml(raw, "Delete")
    assert caught.value.code == "MalformedXML"


def test_no_slice_of_xml_takes_more_work_than_its_size(monkeypatch):
    """100,000 attributes are refused before expat has put them together, which took half a second at once."""
    fed = []
    feed = XmlReader.feed
    monkeypatch.setattr(
        XmlReader, "feed", lambda self, piece, **last: (fed.append(len(piece)), feed(self, piece, **last))
    )
    for many in (b"<Delete " + b" ".join(b"a%d=''" % n for n in range(100_000)) + b"/>", b"<" + b"a" * 1_000_000):
        fed.clear()
        with pytest.raises(S3Error):
            parse_xml(many, "Delete")
        assert max(fed) <= 8 << 10
        assert sum(fed) <= 16 << 10


def test_indented_xml_with_ten_thousand_parts_is_read():
    part = (
        b"\n" + b" " * 40 + b"<Part>\n\t\t<PartNumber>1</PartNumber>\r\n<!-- x -->  <ETag>&quot;a&#34;</ETag>  </Part>"
    )
    root = parse_xml(b"<C xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>" + part * 10_000 + b"\n</C>\n", "C")
    assert len(root.all("Part")) == 10_000
    assert root.all("Part")[9_999].get("ETag") == '"a"'


def test_xml_is_read_whatever_its_namespace():
    root = parse_xml(b'<s:Delete xmlns:s="urn:x"><s:Object><s:Key>a&amp;b</s:Key></s:Object></s:Delete>', "Delete")
    assert root.all("Object")[0].need("Key") == "a&b"


@given(st.binary(max_size=200))
def test_any_bytes_are_xml_or_refused(raw):
    for document in (raw, b"<Delete>" + raw + b"</Delete>"):
        try:
            parse_xml(document, "Delete")
        except S3Error as error:
            assert error.code == "MalformedXML"


@given(st.text())
def test_text_survives_escaping(text):
    written = f"<a>{escape(text)}</a>".encode()
    plain = all(char >= " " and char not in "\ufffe\uffff\x7f" for char in text)
    if plain:
        assert parse_xml(written, "a").text == text


@given(st.binary(max_size=100))
def test_any_key_can_be_listed(key):
    from urllib.parse import unquote_to_bytes

    assert unquote_to_bytes(url_encode(key)) == key
    escape_bytes(key).encode()


def test_a_listing_escapes_what_must_be():
    from gateway.engine.types import Page

    names = (b"plain", b"a&b<c>", b"\xff", "é".encode())
    listed = Page(
        [(b"", [(name, 1, "e", 10**18, 7, b"") for name in names]), (b"<d>/", [(b"x", 1, "e", 1, 7, None)])], [], None
    )
    text = format_keys(listed, key_encoder(False), None)
    assert "<Key>&lt;d&gt;/x</Key>" in text and "Checksum" not in text
    assert "<Key>plain</Key>" in text
    assert "<Key>a&amp;b&lt;c&gt;</Key>" in text
    assert "<Key>\ufffd</Key>" in text
    assert "<LastModified>2001-09-09T01:46:40.000Z</LastModified>" in text
    assert "<Key>%FF</Key>" in format_keys(listed, key_encoder(True), None)


# --- tokens -----------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=64), st.binary(max_size=100))
def test_a_token_opens_where_it_was_sealed_and_nowhere_else(key, position):
    token = seal_token(key, "bucket", position)
    assert open_token(key, "bucket", token) == position
    for wrong_key, wrong_bucket in ((key, "other"), (b"not" + key[:50], "bucket")):
        with pytest.raises(S3Error):
            open_token(wrong_key, wrong_bucket, token)


@given(st.text(max_size=60))
def test_what_is_no_token_is_refused(text):
    with pytest.raises(S3Error) as caught:
        open_token(b"key", "bucket", text)
    assert caught.value.code == "InvalidArgument"
