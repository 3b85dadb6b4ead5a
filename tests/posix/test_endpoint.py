"""The endpoint and its credentials: options, the environment, files; TLS; what a pickled file system contains."""

from __future__ import annotations

import multiprocessing
import pickle
import urllib.error
import urllib.request

import fsspec
import pytest

from gateway.errors import Misconfigured
from gateway.posix.fsspec.filesystem import EntrepotFileSystem
from gateway.posix.rpc.endpoint import EndpointOptions, resolve_endpoint
from gateway.timing import VARIABLE
from tests.certificates import self_signed
from tests.endpoint import started
from tests.new_sites import new_site
from tests.site.running import change_config

NAMES = ("SITE", "ENDPOINT", "ACCESS_KEY", "SECRET_KEY", "CREDENTIALS_FILE", "CA_FILE", "REGION")
GIVEN = {"endpoint": "http://127.0.0.1:9000", "key": "AKGIVEN", "secret": "given-secret"}


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(f"ENTREPOT_{name}", raising=False)


@pytest.fixture
def said(served, monkeypatch):
    """The environment names the gateway and who acts."""
    monkeypatch.setenv("ENTREPOT_ENDPOINT", served.url)
    monkeypatch.setenv("ENTREPOT_ACCESS_KEY", served.access_key)
    monkeypatch.setenv("ENTREPOT_SECRET_KEY", served.secret_key)


def credentials(folder, key: str, secret: str):
    path = folder / "credentials.toml"
    path.write_text(f'access_key = "{key}"\nsecret_key = "{secret}"\n')
    return path


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("http://10.0.0.1:9000", "10.0.0.1:9000"), ("https://gate.example.org", "gate.example.org"),
        ("https://gate.example.org:443/", "gate.example.org"), ("http://[::1]:9000", "[::1]:9000"),
    ],
)  # fmt: skip
def test_an_endpoint_is_an_address(endpoint, host):
    assert resolve_endpoint(EndpointOptions(**GIVEN | {"endpoint": endpoint})).host == host


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"endpoint": "gate:9000"}, "form"), ({"endpoint": ""}, "form"), ({"endpoint": "http://h:port"}, "not a URL"),
        ({"endpoint": "http://user:word@h"}, "form"), ({"endpoint": "http://h/path"}, "must not have a path"),
        ({"key": ""}, "together"), ({"secret": ""}, "together"), ({"key": "a b"}, "not a valid access key"),
        ({"secret": "short"}, "8 to 128"), ({"key": "", "secret": ""}, "no credentials"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_without_the_secret(options, match):
    with pytest.raises(Misconfigured, match=match) as wrong:
        resolve_endpoint(EndpointOptions(**GIVEN | options))
    assert "given-secret" not in str(wrong.value)


def test_options_go_before_files_and_those_before_the_environment(tmp_path, monkeypatch):
    path = str(credentials(tmp_path, "AKFILE", "file-secret"))
    monkeypatch.setenv("ENTREPOT_CREDENTIALS_FILE", path)
    nobody = {"endpoint": GIVEN["endpoint"]}
    assert resolve_endpoint(EndpointOptions(**nobody)).key == "AKFILE"
    monkeypatch.setenv("ENTREPOT_ACCESS_KEY", "AKENV")
    monkeypatch.setenv("ENTREPOT_SECRET_KEY", "env-secret")
    assert resolve_endpoint(EndpointOptions(**nobody)).key == "AKENV"
    assert resolve_endpoint(EndpointOptions(**nobody, credentials_file=path)).key == "AKFILE"
    assert resolve_endpoint(EndpointOptions(**GIVEN, credentials_file=path)).key == "AKGIVEN"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("access_key = ", "cannot be read"),
        ("token = 'x'", "has the key 'token'"),
        ("access_key = 7", "must be strings"),
        ("", "together"),
    ],
)  # fmt: skip
def test_a_file_of_credentials_that_is_wrong_is_named_without_what_is_in_it(tmp_path, text, match):
    (tmp_path / "file").write_text(text + "\n# very-secret")
    with pytest.raises(Misconfigured, match=match) as wrong:
        resolve_endpoint(EndpointOptions(endpoint=GIVEN["endpoint"], credentials_file=str(tmp_path / "file")))
    assert "very-secret" not in str(wrong.value)
    assert str(tmp_path / "file") in str(wrong.value)


def test_a_secret_is_in_no_text_of_the_gateway():
    options = EndpointOptions(**GIVEN)
    assert "given-secret" not in repr(options) + repr(resolve_endpoint(options))


def test_one_way_at_a_time(served, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="exclude each other"):
        EntrepotFileSystem(site=tmp_path, endpoint=served.url)
    with pytest.raises(ValueError, match="select the user"):
        EntrepotFileSystem(endpoint=served.url, user="carla")
    monkeypatch.setenv("ENTREPOT_SITE", str(tmp_path))
    monkeypatch.setenv("ENTREPOT_ENDPOINT", served.url)
    with pytest.raises(ValueError, match="both set"):
        fsspec.filesystem("entrepot", skip_instance_cache=True).ls("")


def test_nobody_at_the_address_is_an_error_of_the_operating_system(monkeypatch):
    monkeypatch.setenv(VARIABLE, "files.hello_seconds=0.2")
    fs = EntrepotFileSystem(**GIVEN | {"endpoint": "http://127.0.0.1:9"}, skip_instance_cache=True)
    with pytest.raises(OSError, match="does not answer"):
        fs.ls("")


def test_a_config_file_names_its_site_too(tmp_path):
    new_site(tmp_path / "site")
    fs = EntrepotFileSystem(site=tmp_path / "site" / "entrepot.toml", skip_instance_cache=True)
    fs.mkdir("bay")
    assert fs.ls("", detail=False) == ["bay"]
    fs.close()


@pytest.mark.parametrize("hours", [-20, 3])
def test_a_clock_that_goes_wrong_is_set_right_by_the_gateways(served, monkeypatch, hours, caplog):
    monkeypatch.setenv(VARIABLE, f"wall_offset_seconds={hours * 3600}")
    own = 60.0 + hours  # a gateway of other options has a connection of its own
    fs = EntrepotFileSystem(
        endpoint=served.url, key=served.access_key, secret=served.secret_key, timeout=own, skip_instance_cache=True
    )
    fs.mkdir(f"skewed{hours}")
    with fs.open(f"skewed{hours}/x", "wb") as opened:
        opened.write(bytes(9 << 20))
    assert fs.cat_file(f"skewed{hours}/x") == bytes(9 << 20)
    assert urllib.request.urlopen(fs.sign(f"skewed{hours}/x")).read(10) == bytes(10)
    assert len([each for each in caplog.records if "clock" in each.message]) == 1
    fs.close()


def test_a_signed_address_is_read_by_anybody_for_as_long_as_it_says(served):
    fs = EntrepotFileSystem(endpoint=served.url, key=served.access_key, secret=served.secret_key)
    fs.mkdir("signed")
    for name in ("plain", "a b/%41?x=1&y#z+é", "latin-\udce9", "日本/\n"):
        fs.pipe_file(f"signed/{name}", name.encode("utf-8", "surrogateescape"))
        with urllib.request.urlopen(fs.sign(f"signed/{name}", expiration=60)) as answer:
            assert answer.read() == name.encode("utf-8", "surrogateescape")
    address = fs.sign("signed/plain")
    assert served.secret_key not in address
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address.replace("plain", "a"))
    for seconds in (0, 604_801):
        with pytest.raises(ValueError, match="1 to 604800"):
            fs.sign("signed/plain", expiration=seconds)
    with pytest.raises(IsADirectoryError):
        fs.sign("signed")


def test_in_process_no_address_is_signed(tmp_path):
    with pytest.raises(ValueError, match="endpoint="):
        EntrepotFileSystem(site=tmp_path).sign("bay/x")


# --- pickled, forked, spawned -----------------------------------------------------------------------------------------


def seen(fs: EntrepotFileSystem, path: str) -> bytes:
    return fs.cat_file(path)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_pickled_file_system_carries_no_secret_of_the_environment(said, served, start):
    fs = EntrepotFileSystem()
    bucket = f"pickled-{start}"
    fs.mkdir(bucket)
    fs.pipe_file(f"{bucket}/x", b"bytes")
    assert served.secret_key.encode() not in pickle.dumps(fs)
    assert served.secret_key not in fs.to_json()
    with multiprocessing.get_context(start).Pool(2) as pool:
        assert pool.starmap(seen, [(fs, f"{bucket}/x")] * 4) == [b"bytes"] * 4
    assert fs.cat_file(f"{bucket}/x") == b"bytes"


def test_a_pickled_file_system_names_its_file_of_credentials_and_not_what_is_in_it(served, tmp_path):
    path = credentials(tmp_path, served.access_key, served.secret_key)
    fs = EntrepotFileSystem(endpoint=served.url, credentials_file=path)
    assert pickle.loads(pickle.dumps(fs)) is fs
    assert fs.exists("")
    assert served.secret_key.encode() not in pickle.dumps(fs)
    assert path.name.encode() in pickle.dumps(fs)


def test_a_forked_child_that_ends_leaves_its_parents_connections(said):
    fs = EntrepotFileSystem()
    fs.ls("")
    for _ in range(3):
        child = multiprocessing.get_context("fork").Process(target=fs.ls, args=("",))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        fs.ls("")


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match=r"has no option endpoint_url; it has site, user,.* endpoint, "):
        EntrepotFileSystem(endpoint_url="http://127.0.0.1:9000")
    EntrepotFileSystem(asynchronous=False, listings_expiry_time=1, max_paths=10, skip_instance_cache=True)


def test_a_bucket_that_does_not_exist_is_named(said):
    fs = EntrepotFileSystem()
    for call in (lambda: fs.ls("nosuch/x"), lambda: fs.cat_file("nosuch/x"), lambda: fs.pipe_file("nosuch/x", b"")):
        with pytest.raises(FileNotFoundError, match="there is no bucket 'nosuch'"):
            call()


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_a_gateway_without_tls_says_so_to_a_client_that_wants_it(served):
    options = {"key": served.access_key, "secret": served.secret_key}
    fs = EntrepotFileSystem(endpoint=served.url.replace("http://", "https://"), **options)
    with pytest.raises(OSError, match="does not speak TLS: write http:// in the endpoint"):
        fs.ls("")


def test_over_tls_the_gateway_has_to_show_who_it_is(tmp_path):
    new_site(tmp_path / "site")
    certificate, private = self_signed("localhost")
    for name, pem in (("tls.crt", certificate), ("tls.key", private)):
        (tmp_path / "site" / name).write_bytes(pem)
    change_config(tmp_path / "site", "# tls_certificate", "tls_certificate")
    change_config(tmp_path / "site", "# tls_key", "tls_key")
    with started(tmp_path / "site") as (running, _):
        assert running.url.startswith("https://")
        options = {"endpoint": running.url, "key": running.access_key, "secret": running.secret_key}
        with pytest.raises(PermissionError, match="cannot be verified"):
            EntrepotFileSystem(**options).ls("")
        fs = EntrepotFileSystem(**options, ca_file=tmp_path / "site" / "tls.crt")
        fs.mkdir("bay")
        fs.pipe_file("bay/d/x", bytes(9 << 20))
        fs.mv("bay/d", "bay/e")
        assert fs.cat_file("bay/e/x") == bytes(9 << 20)
        with fs.open("bay/e/y", "wb") as opened:
            opened.write(bytes(20 << 20))
        assert fs.du("bay") == 29 << 20
        fs.close()
