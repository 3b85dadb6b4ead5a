"""The config file: what `init` writes, what is accepted, and how everything that is wrong is said at once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gateway.config import Address, default_text, load, load_text, parse_address
from gateway.config.schema import schema_text
from gateway.errors import Misconfigured

REPOSITORY = Path(__file__).parents[2]
HERE = Path("/site")


def complaints(text: str) -> list[str]:
    with pytest.raises(Misconfigured) as refused:
        load_text(text, HERE)
    return str(refused.value).splitlines()


def test_the_example_in_conf_is_what_init_writes() -> None:
    assert (REPOSITORY / "conf" / "embedded.toml").read_text() == default_text()


def test_the_example_says_the_defaults() -> None:
    written = load_text(default_text(), HERE)
    bare = load_text(
        """
        [site]
        name = "entrepot"
        [server]
        listen = "127.0.0.1:9000"
        [metrics]
        listen = "127.0.0.1:9001"
        [clusters.home]
        [backends.disk]
        type = "local"
        cluster = "home"
        path = "blocks"
        [policies.default]
        ack = ["disk"]
        keep = ["disk"]
        """,
        HERE,
    )
    assert written == bare


def test_every_setting_of_the_example_is_explained() -> None:
    for line in default_text().splitlines():
        if "=" in line or line.startswith(("[backends", "[policies", "[clusters")):
            assert "#" in line, line


def test_the_name_and_the_mode_of_a_site_go_into_its_file() -> None:
    config = load_text(default_text("lab-7", "tagged"), HERE)
    assert config.site.name == "lab-7"
    assert config.sealing.mode == "tagged"


def test_paths_are_below_the_site_unless_absolute() -> None:
    topology = load_text(default_text(), HERE).topology(HERE)
    assert topology.backends["disk"].path == "/site/blocks"
    moved = load_text(default_text().replace('path = "blocks"', 'path = "/mnt/blocks"'), HERE)
    assert moved.topology(HERE).backends["disk"].path == "/mnt/blocks"


def test_what_is_wrong_is_said_all_at_once_with_file_key_and_reason() -> None:
    text = (
        default_text()
        .replace("workers = 0", 'workers = "many"')
        .replace('region = "us-east-1"', 'regoin = "us-east-1"')
        .replace('bytes_in_flight = "96 MiB"', 'bytes_in_flight = "64 megs"')
        .replace('listen = "127.0.0.1:9001"', 'listen = "9001"')
    )
    said = complaints(text)
    assert len(said) == 4
    assert "entrepot.toml: site.regoin: there is no such setting; is region meant?" in said
    assert "entrepot.toml: server.workers: must be a whole number, not 'many'" in said
    assert any(line.startswith("entrepot.toml: server.bytes_in_flight: a size is") for line in said)
    assert any("'64 megs'" in line for line in said)
    assert any(line.startswith("entrepot.toml: metrics.listen: an address is HOST:PORT") for line in said)


def test_names_that_dangle_are_refused_with_what_there_is() -> None:
    text = default_text().replace('cluster = "home"', 'cluster = "away"').replace('ack = ["disk"]', 'ack = ["disc"]')
    assert complaints(text) == [
        "entrepot.toml: backends.disk.cluster: there is no cluster 'away'; there is home",
        "entrepot.toml: policies.default.ack: there is no backend 'disc'; there is disk",
    ]


def test_a_policy_that_stores_nothing_is_refused() -> None:
    text = default_text().replace('ack = ["disk"]', "ack = []").replace('keep = ["disk"]', 'keep = ["disk", "disk"]')
    assert complaints(text) == [
        "entrepot.toml: policies.default.ack: names no backend, so nothing would be stored",
        "entrepot.toml: policies.default.keep: names a backend twice",
    ]


def test_a_certificate_without_its_key_is_refused() -> None:
    text = default_text().replace("# tls_certificate", "tls_certificate")
    assert complaints(text) == ["entrepot.toml: server.tls_key: is missing: TLS needs both the certificate and its key"]


def test_two_servers_on_one_port_are_refused() -> None:
    (told,) = complaints(default_text().replace("127.0.0.1:9001", "127.0.0.1:9000"))
    assert told == "entrepot.toml: metrics.listen: is the same as server.listen: S3 and metrics need different ports"
    load_text(default_text().replace("127.0.0.1:9001", "127.0.0.1:0").replace("127.0.0.1:9000", "127.0.0.1:0"), HERE)


def test_what_is_not_toml_is_refused_with_its_line() -> None:
    (said,) = complaints("[site\n")
    assert said.startswith("entrepot.toml: is not TOML:")
    assert "line 1" in said


def test_a_site_without_a_config_is_refused_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"entrepot\.toml: cannot be read: No such file"):
        load(tmp_path)


def test_a_config_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "entrepot.toml").write_bytes(b"[site]\nname = '\xff'")
    with pytest.raises(Misconfigured, match="is not UTF-8 at byte"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("127.0.0.1:9000", Address("127.0.0.1", 9000)),
        ("[::1]:0", Address("::1", 0)),
        ("gateway.example.org:443", Address("gateway.example.org", 443)),
    ],
)
def test_an_address_is_read_and_written_the_same(written: str, meant: Address) -> None:
    assert parse_address(written) == meant
    assert str(meant) == written


@pytest.mark.parametrize("written", ["9000", "host", "host:99999", ":9000", "::1:9000", "host:port", "a b:1"])
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(written)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = " + "[" * 3_000 + "]" * 3_000, "nested too deeply"),
        ("x = " + "9" * 5_000, "a number in it cannot be read"),
        ("[site]\nname = 'a'\n[site]\n", "is not TOML"),
    ],
)
def test_whatever_the_parser_does_not_take_is_one_sentence(text: str, said: str) -> None:
    (told,) = complaints(text)
    assert told.startswith("entrepot.toml: ")
    assert said in told


def test_an_editor_s_mark_and_line_ends_mean_nothing(tmp_path: Path) -> None:
    plain = load_text(default_text(), tmp_path)
    (tmp_path / "entrepot.toml").write_bytes(b"\xef\xbb\xbf" + default_text().replace("\n", "\r\n").encode())
    assert load(tmp_path).version == plain.version


def test_a_name_that_is_none_is_told_on_one_line() -> None:
    (told,) = complaints(default_text() + '[backends."a\\nb"]\ntype = "local"\ncluster = "home"\npath = "x"\n')
    assert told.startswith('entrepot.toml: backends."a\\nb": string should match')


def test_a_size_is_below_what_a_number_holds() -> None:
    for size in ('"9999999 TiB"', '"99999999999999999999"', "9223372036854775808", '"\u0663 MiB"'):
        (told,) = complaints(default_text().replace('"96 MiB"', size))
        assert told.startswith("entrepot.toml: server.bytes_in_flight: a size is a number of bytes or like")


def test_a_path_holds_nothing_that_no_file_system_takes() -> None:
    (told,) = complaints(default_text().replace('path = "blocks"', 'path = "blo\\u0000cks"'))
    assert told.startswith("entrepot.toml: backends.disk.path: a path must not contain control characters")


@pytest.mark.parametrize("path", [".", "..", "x/../..", "/", "journal", "journal/blocks", "run", "/site/run/x"])
def test_a_backend_does_not_lie_where_the_site_keeps_other_things(path: str) -> None:
    said = complaints(default_text().replace('path = "blocks"', f'path = "{path}"'))
    assert any(each.startswith("entrepot.toml: backends.disk.path: overlaps with") for each in said)


def test_a_site_may_be_named_from_where_one_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    more = '[backends.more]\ntype = "local"\ncluster = "home"\npath = "{}"\n'
    assert load_text(default_text() + more.format("/mnt/blocks"), Path("site"))
    with pytest.raises(Misconfigured, match="share a place"):
        load_text(default_text() + more.format(tmp_path / "site" / "blocks"), Path("site"))


def test_there_are_no_more_rules_than_a_write_can_ask() -> None:
    rules = "".join(f"[[rules]]\npolicy = 'default'\nbucket = 'b{n}-*'\n" for n in range(1_001))
    assert complaints(default_text() + rules) == ["entrepot.toml: rules: has 1001 entries; at most 1000 are allowed"]
    assert len(load_text(default_text() + rules.rpartition("[[rules]]")[0], HERE).rules) == 1_000


BOUNDS = [
    ("server.bytes_wait_seconds", 0.1, 3_600),
    ("server.idle_seconds", 1, 86_400),
    ("server.body_idle_seconds", 1, 86_400),
    ("server.write_idle_seconds", 1, 86_400),
    ("server.stop_seconds", 0.1, 3_600),
    ("journal.lease_seconds", 1, 300),
    ("journal.fork_grace_hours", 0, 8_760),
    ("placement.recheck_seconds", 0, 31 * 86_400),
    ("uploads.expire_days", 0.05, 3_650),
    ("backends.disk.deadline_seconds", 1, 3_600),
    ("policies.default.within_seconds", 1, 31 * 86_400),
]
"""What each duration may be."""


@pytest.mark.parametrize(("path", "least", "most"), BOUNDS)
def test_a_duration_outside_its_bounds_is_refused_with_its_key_and_its_bound(
    path: str, least: float, most: float
) -> None:
    table, _, name = path.rpartition(".")

    def written(value: float) -> str:
        without = re.sub(rf"(?m)^{name} = .*$", "", default_text())
        return without.replace(f"[{table}]", f"[{table}]\n{name} = {float(value)!r}\n#")

    for value in (least, most):
        load_text(written(value), HERE)
    for value, bound in ((least - 1e-9, least), (-1.0, least), (most * 1.001, most), (1e300, most)):
        (said,) = complaints(written(value))
        assert said.startswith(f"entrepot.toml: {path}: "), said
        assert f"than or equal to {bound}" in said, said
    if least > 1e-9:
        assert len(complaints(written(1e-9))) == 1


def test_every_duration_has_bounds() -> None:
    """So that a new one gets some, and a line above."""
    schema = json.loads(schema_text())
    tables = {"": schema, **schema["$defs"]}
    found = 0
    for title, table in tables.items():
        for name, field in table.get("properties", {}).items():
            if name.endswith(("_seconds", "_hours", "_days")):
                found += 1
                assert {"minimum", "maximum"} <= field.keys(), f"{title}: {name}"
    assert found >= len(BOUNDS) + 1  # the same twice for both kinds of backends, and a line's latency
