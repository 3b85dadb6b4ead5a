"""Two backends do not share a place, whatever it is called; and a file that would take minutes to read is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.config import default_text, load_text
from gateway.errors import Misconfigured
from tests.backends.mounts import mounted

LOCAL = '[backends.{}]\ntype = "local"\ncluster = "home"\npath = "{}"\n'
S3 = '[backends.{}]\ntype = "s3"\ncluster = "home"\nbucket = "{}"\nendpoint = "{}"\nprefix = "{}"\n'


def told(text: str, folder: Path) -> str:
    try:
        load_text(text, folder)
    except Misconfigured as error:
        return str(error)
    return ""


@pytest.mark.parametrize("target", ["vault", "vault/inner", "."])
def test_a_symbolic_link_to_the_folder_of_another_backend_is_told(tmp_path: Path, target: str) -> None:
    (tmp_path / "vault" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / target)
    site = tmp_path / "site"
    text = default_text() + LOCAL.format("one", tmp_path / "vault") + LOCAL.format("two", tmp_path / "link" / "x")
    if target == ".":
        text = default_text() + LOCAL.format("one", tmp_path / "vault") + LOCAL.format("two", tmp_path / "link")
        assert "backends.two.path: overlaps with" in told(text, site)
        return
    assert "backends.two.path: leads to the folder of backends.one" in told(text, site)


def test_a_symbolic_link_to_the_journal_is_told_and_one_to_elsewhere_is_not(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "journal").mkdir(parents=True)
    (tmp_path / "link").symlink_to(site / "journal")
    text = default_text() + LOCAL.format("one", tmp_path / "link")
    assert "backends.one.path: overlaps with the journal's folder" in told(text, site)
    (tmp_path / "link").unlink()
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert told(text, site) == ""


def test_a_folder_that_is_mounted_twice_is_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "x").mkdir(parents=True)
    text = default_text() + LOCAL.format("one", tmp_path / "one") + LOCAL.format("two", tmp_path / "two" / "x")
    assert told(text, tmp_path / "site") == ""
    with mounted(tmp_path / "two", "--bind", str(tmp_path / "one")):
        assert "backends.two.path: leads to the folder of backends.one" in told(text, tmp_path / "site")


SAME = [
    ("https://s3.example.org", "https://S3.Example.ORG"),
    ("https://s3.example.org", "https://s3.example.org:443/"),
    ("https://s3.example.org", "https://s3.example.org."),
    ("https://s3.example.org", "http://s3.example.org"),
    ("https://s3.example.org:9000", "http://s3.example.org:9000"),
    ("http://[::1]:9000", "http://[0:0:0:0:0:0:0:1]:9000"),
    ("http://[2001:db8::1]", "http://[2001:0DB8:0::1]:80"),
    ("http://[::ffff:192.0.2.1]:9000", "http://192.0.2.1:9000"),
    ("http://localhost:9000", "http://127.0.0.1:9000"),
    ("", "https://s3.amazonaws.com"),
    ("https://s3.eu-west-1.amazonaws.com", "https://s3-eu-west-1.amazonaws.com"),
    ("https://s3.dualstack.eu-west-1.amazonaws.com", "https://s3.us-east-2.amazonaws.com:443"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_a_bucket_under_two_spellings_of_its_endpoint_is_told(tmp_path: Path, one: str, other: str) -> None:
    text = default_text() + S3.format("one", "bucket", one, "a") + S3.format("two", "bucket", other, "a/b")
    assert "one's prefix lies below the other's" in told(text, tmp_path)
    text = default_text() + S3.format("one", "bucket", one, "a") + S3.format("two", "bucket", other, "a/")
    assert "is the bucket and prefix of backends.one too" in told(text, tmp_path)
    text = default_text() + S3.format("one", "bucket", one, "a") + S3.format("two", "bucket", other, "ab")
    assert told(text, tmp_path) == ""


@pytest.mark.parametrize(
    "other", ["https://s3.example.com", "https://s3.example.org:9000", "https://s3.amazonaws.com.example.org"]
)
def test_another_server_may_have_a_bucket_of_that_name(tmp_path: Path, other: str) -> None:
    text = default_text() + S3.format("one", "bucket", "https://s3.example.org", "") + S3.format(
        "two", "bucket", other, ""
    )  # fmt: skip
    assert told(text, tmp_path) == ""


@pytest.mark.parametrize(
    "line",
    [
        "." * 400_000,
        ".".join("a" * 200_000) + " = 1",
        "[" + ".".join("a" * 200_000) + "]",
        ".".join(['"a"'] * 100_000) + " = 1",
        ".".join(["'a#='"] * 50_000) + " = 1",
        "x = { " + " . ".join("a" * 100_000) + " = 1 }",
    ],
    ids=["dots", "a key", "a table", "quoted", "quoted otherwise", "an inline table"],
)
def test_a_key_of_too_many_parts_is_refused_before_it_is_parsed(tmp_path: Path, line: str) -> None:
    began = time.process_time()
    assert f"line {len(default_text().splitlines()) + 1}: a key has at most 16 parts" in told(
        default_text() + line, tmp_path
    )
    assert time.process_time() - began < 10, "it took minutes"


def test_dots_that_are_in_no_key_are_fine(tmp_path: Path) -> None:
    more = f"# {'.' * 1_000}\n" + LOCAL.format("one", "/mnt/" + "." * 100 + "x") + f"calls = 8 # {'. ' * 100}\n"
    assert told(default_text() + more, tmp_path) == ""
