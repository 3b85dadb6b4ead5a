"""Clusters, lines, backends, policies and rules as the file has them; and that no secret comes out of it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import default_text, load_text
from gateway.config.units import parse_bandwidth
from gateway.errors import Misconfigured
from gateway.topology import Line, Rule, S3Place

HERE = Path("/site")
CLOUD = """
[clusters.cloud]
[backends.bucket]
type = "s3"
cluster = "cloud"
bucket = "blocks"
"""
SECRET = "hunter2+hunter2/hunter2="


def site(*more: str) -> str:
    return default_text().replace("domains = []", 'domains = []\ncluster = "home"') + "\n".join(("", *more))


def complaints(text: str) -> list[str]:
    with pytest.raises(Misconfigured) as refused:
        load_text(text, HERE)
    assert refused.value.__cause__ is None
    return [line.removeprefix("entrepot.toml: ") for line in str(refused.value).splitlines()]


def place(*settings: str) -> S3Place:
    found = load_text(site(CLOUD, *settings), HERE).topology(HERE).backends["bucket"].s3
    assert found is not None
    return found


def test_a_bucket_needs_nothing_but_its_name() -> None:
    assert place() == S3Place("blocks")


def test_a_bucket_says_where_it_is_and_where_its_keys_are() -> None:
    found = place(
        'prefix = "/shared/entrepot"', 'endpoint = "http://minio:9000/"', 'region = "eu-west-1"', 'style = "path"',
        'access_key_env = "ID"', 'secret_key_file = "minio.secret"', 'ca_file = "/etc/ca.pem"', "create_bucket = true",
    )  # fmt: skip
    assert found == S3Place(
        "blocks", "shared/entrepot/", "http://minio:9000", "eu-west-1", "path", access_key_env="ID",
        secret_key_file="/site/minio.secret", create_bucket=True, ca_file="/etc/ca.pem",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('access_key = "AK"', "set secret_key_env or secret_key_file too"),
        ('secret_key_env = "S"', "set access_key or access_key_env too"),
        (
            'access_key = "AK"\naccess_key_env = "ID"\nsecret_key_env = "S"',
            "access_key and access_key_env exclude each other",
        ),
        (
            'access_key = "AK"\nsecret_key_env = "S"\nsecret_key_file = "s"',
            "secret_key_env and secret_key_file exclude each other",
        ),
        ('access_key = "AK"\nsecret_key_env = "S"\nprofile = "p"', "a profile has its own keys"),
        ('session_token_env = "T"', "session_token_env needs an access key"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(settings: str, reason: str) -> None:
    (said,) = complaints(site(CLOUD, settings))
    assert said.startswith("backends.bucket: ")
    assert reason in said


@pytest.mark.parametrize(
    "settings",
    [
        f'secret_key = "{SECRET}"',
        f'secret_key_env = "{SECRET}"',
        f'access_key_env = "{SECRET}"',
        f'session_token_env = "{SECRET}"',
        f'password = "{SECRET}"',
        f'endpoint = "https://me:{SECRET}@s3.example.org"',
        f'ca_file = {{secret_key = "{SECRET}"}}',
        f'calls = [{{secret_key = "{SECRET}"}}]',
        f'[backends.more]\nsecret_key = "{SECRET}"',
        f'[backends.more]\ntype = "s4"\nsecret_key = "{SECRET}"',
        f'[backends.more]\ntype = {{secret_key = "{SECRET}"}}',
        f'[policies]\nmore = {{secret_key = "{SECRET}"}}',
    ],
)
def test_a_secret_that_stands_in_the_file_is_refused_and_not_repeated(settings: str) -> None:
    text = site(CLOUD).replace("[policies.default]", "[policies.other]") + settings
    assert SECRET not in "\n".join(complaints(text))


def test_a_secret_key_in_the_file_is_told_where_it_belongs() -> None:
    (said,) = complaints(site(CLOUD, 'secret_key = "x"'))
    assert said == (
        "backends.bucket.secret_key: a secret does not belong in this file: secret_key_env or secret_key_file names "
        "where it is"
    )


def test_an_unknown_setting_names_the_nearest_known_one() -> None:
    more = "[policies.more]\nwithin = 3\nack = []\nkeep = []"
    text = site(CLOUD, 'bukcet = "x"\nzzz = 1', "[polices]\n[[rule]]", more)
    assert [each.partition(": ")[2] for each in complaints(text) if "setting" in each] == [
        "there is no such setting; is bucket meant?",
        "there is no such setting",
        "there is no such setting; is within_seconds meant?",
        "there is no such setting; is policies meant?",
        "there is no such setting; is rules meant?",
    ]


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        ('bucket = "My_Blocks"', "create_bucket = true"),
        ('bucket = "My_Blocks"', 'style = "virtual"'),
        ('bucket = "a..b"', "create_bucket = true"),
        ('bucket = "blocks-"', "create_bucket = true"),
        ('bucket = "10.0.0.1"', "create_bucket = true"),
        (f'bucket = "{"b" * 64}"', "create_bucket = true"),
    ],
)
def test_a_bucket_whose_name_s3_does_not_support_is_refused(change: str, settings: str) -> None:
    (said,) = complaints(site(CLOUD.replace('bucket = "blocks"', change), settings))
    assert said.startswith("backends.bucket: bucket ")
    assert "is not a name that S3 supports: it must" in said


def test_a_bucket_that_exists_elsewhere_may_have_another_name() -> None:
    text = site(CLOUD.replace('bucket = "blocks"', 'bucket = "My_Blocks"'), 'endpoint = "http://minio:9000"')
    assert load_text(text, HERE).topology(HERE).backends["bucket"].s3 is not None


def test_a_setting_of_another_type_of_backend_is_said_to_be_one() -> None:
    text = site(CLOUD, 'path = "/x"\npath_ = "x"').replace(
        'path = "blocks"', 'path = "blocks"\nbucket = "x"\nprefix_ = ""'
    )
    assert sorted(complaints(text)) == [
        "backends.bucket.path: a backend of type 's3' has no such setting",
        "backends.bucket.path_: there is no such setting",
        "backends.disk.bucket: a backend of type 'local' has no such setting",
        "backends.disk.prefix_: there is no such setting",
    ]


def test_near_is_no_backend_that_keeps_anything() -> None:
    text = site().replace('keep = ["disk"]', 'keep = ["disk", "near"]')
    assert complaints(text) == [
        "policies.default.keep: 'near' is allowed in ack only, for those of keep in this cluster: name backends here"
    ]


def test_no_number_is_without_end() -> None:
    line = (
        '[clusters.b]\n[[lines]]\nclusters = ["home", "b"]\nlatency_seconds = nan\nbandwidth = 1\nprice_per_gib = inf'
    )
    assert complaints(site(line)) == [
        "lines[0].latency_seconds: input should be a finite number, not nan",
        "lines[0].price_per_gib: input should be a finite number, not inf",
    ]


def test_there_are_no_more_backends_than_can_be_compared() -> None:
    many = "".join(f'[backends.b{n}]\ntype = "local"\ncluster = "home"\npath = "/b{n}"\n' for n in range(256))
    assert complaints(site(many)) == ["backends: has 257 entries; at most 256 are allowed"]


def test_a_backend_of_a_kind_that_there_is_not_is_told_which_there_are() -> None:
    text = site('[backends.tape]\ntype = "tape"\ncluster = "home"', '[backends.none]\ncluster = "home"')
    assert complaints(text) == ["backends.tape.type: must be 'local' or 's3'", "backends.none.type: is missing"]


def test_lines_and_rules_stand_in_lists_and_are_counted_from_nothing() -> None:
    text = site(
        "[clusters.cloud]",
        '[[lines]]\nclusters = ["home", "cloud"]\nlatency_seconds = 0.03\nbandwidth = "10 Gbit/s"',
        '[[rules]]\npolicy = "default"\nbucket = "train-*"\nprefix = "ckpt/"\nmin_bytes = "1 MiB"\nuser = "ann"',
    )
    topology = load_text(text, HERE).topology(HERE)
    pair = frozenset({"home", "cloud"})
    assert topology.lines == {pair: Line(pair, 0.03, 1.25e9, 0.0)}
    assert topology.rules == (Rule("default", "train-*", "ckpt/", 1 << 20, None, "ann"),)
    broken = text.replace('"10 Gbit/s"', '"fast"').replace('"1 MiB"', '"1 Mib"')
    assert [each.partition(":")[0] for each in complaints(broken)] == ["lines[0].bandwidth", "rules[0].min_bytes"]


def test_near_may_stand_alone() -> None:
    config = load_text(default_text().replace('ack = ["disk"]', 'ack = "near"'), HERE)
    topology = config.topology(HERE)
    assert topology.acked_on(topology.default) == ("disk",)


def test_a_site_of_two_clusters_says_in_which_it_stands() -> None:
    (said,) = complaints(default_text() + CLOUD)
    assert said.startswith("site.cluster: is missing")


def test_what_means_the_same_has_the_same_version() -> None:
    text = site(CLOUD)
    version = load_text(text, HERE).version
    assert len(version) == 12
    assert load_text(text.replace("# ", "#  ") + "# more\n", HERE).version == version
    assert load_text(text + 'region = ""\n', HERE).version == version
    assert load_text(text + 'region = "x"\n', HERE).version != version


@pytest.mark.parametrize(
    ("written", "meant"), [("10 Gbit/s", 1.25e9), ("50 MB/s", 50e6), ("1.5MiB/s", 1.5 * (1 << 20)), (7, 7.0)]
)
def test_a_bandwidth_is_read(written: object, meant: float) -> None:
    assert parse_bandwidth(written) == meant


@pytest.mark.parametrize("written", ["10 Gb/s", "0 MB/s", "fast", 0, -1, True, None, "10 Gbit"])
def test_what_is_no_bandwidth_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="Gbit/s"):
        parse_bandwidth(written)
