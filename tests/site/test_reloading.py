"""A config that is edited while its site is served: who takes it over, when, and what a bad edit does."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.config import default_text, load_text
from gateway.site.active_config import settings_needing_restart
from tests.endpoint import ENTREPOT, Endpoint, run_entrepot, started
from tests.files import files_below
from tests.new_sites import new_site
from tests.site.running import VAULT, change_config, client, counted, lines, until, watch


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with started(tmp_path_factory.mktemp("reloading") / "site", ["--workers", "2"]) as (found, _):
        client(found).create_bucket(Bucket="far")
        yield found


@pytest.fixture
def config(endpoint: Endpoint) -> Iterator[Path]:
    """The config's file; what a test made of it is taken back."""
    path = endpoint.dir / "entrepot.toml"
    before = path.read_text()
    yield path
    path.write_text(before)
    reload(endpoint)


def reload(endpoint: Endpoint) -> Any:
    """Have the file taken over. It may have been by then, since it changed: then nothing is left to be done."""
    told = json.loads(run_entrepot("reload", str(endpoint.dir), "--json").stdout)
    assert told["outcome"] in {"adopted", "unchanged"}
    return told


def refused(endpoint: Endpoint) -> str:
    done = run_entrepot("reload", str(endpoint.dir), check=False)
    assert done.returncode == 1
    return done.stderr


def versions(endpoint: Endpoint) -> set[str]:
    """Of every process, and of the supervisor."""
    told = watch(endpoint, "/healthz")[1]
    return {told["config"], *(each["config"] for each in told["processes"].values())}


def version_of(endpoint: Endpoint) -> str:
    return str(watch(endpoint, "/healthz")[1]["config"])


def worker(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = watch(endpoint, "/healthz")[1]["processes"]["worker 0"]
    return found


def files(folder: Path) -> int:
    """Values and log groups that lie below a backend's folder."""
    return sum(1 for _ in files_below(folder))


def test_a_command_has_every_process_take_it_over(endpoint: Endpoint, config: Path) -> None:
    before = version_of(endpoint)
    config.write_text(config.read_text().replace("expire_days = 7.0", "expire_days = 8.0"))
    told = reload(endpoint)
    assert told["version"] != before
    assert versions(endpoint) == {told["version"]}
    until(
        lambda: counted(endpoint, "entrepot_config_info", version=told["version"]) == 5, "two workers and three others"
    )
    until(lambda: counted(endpoint, "entrepot_config_info", version=before) == 0, "nobody to run the one before")
    until(lambda: counted(endpoint, "entrepot_config_reloads_total", outcome="adopted") >= 1, "the count")
    assert run_entrepot("config", "show", "--site", str(endpoint.dir), "--effective").stdout.startswith(
        f"# version {told['version']}\n"
    )


def test_what_means_the_same_changes_nothing(endpoint: Endpoint, config: Path) -> None:
    before = version_of(endpoint)
    config.write_text(config.read_text() + "# a word\n")
    assert reload(endpoint) == {"outcome": "unchanged", "version": before, "why": "", "passing": False}


def test_a_bad_edit_leaves_the_old_one_in_force_and_says_so(endpoint: Endpoint, config: Path) -> None:
    before = version_of(endpoint)
    count = counted(endpoint, "entrepot_config_reloads_total", outcome="refused")
    config.write_text(config.read_text() + "[server2]\n[policies.more]\nack = ['disc']\nkeep = ['disk']\n")
    said = refused(endpoint)
    assert f"{config}: server2: there is no such setting; is server meant?" in said
    assert f"version {before} stays in force" in said
    assert versions(endpoint) == {before}
    until(lambda: counted(endpoint, "entrepot_config_reloads_total", outcome="refused") > count, "the count")
    until(lambda: '"config refused"' in endpoint.log.read_text(), "the line, which a thread writes")
    told = watch(endpoint, "/healthz")[1]["config_refused"]
    assert (told["tries"], told["again_seconds"]) == (1, None)
    assert counted(endpoint, "entrepot_config_refused") == 1
    # whoever starts meanwhile, and whoever looks, runs what is in force
    facts = watch(endpoint, "/healthz")[1]["processes"]["worker 0"]
    os.kill(facts["pid"], signal.SIGKILL)
    until(
        lambda: watch(endpoint, "/healthz")[1]["processes"]["worker 0"]["restarts"] > facts["restarts"], "another life"
    )
    until(lambda: watch(endpoint, "/healthz")[0] == 200, "all well")
    assert versions(endpoint) == {before}
    assert run_entrepot("status", str(endpoint.dir)).returncode == 0


@pytest.mark.parametrize(
    ("line", "instead", "where"),
    [
        ('listen = "127.0.0.1:9000"', 'listen = "127.0.0.1:9005"', "server.listen"),
        ("workers = 0 ", "workers = 3 ", "server.workers"),
        ('path = "journal"', 'path = "journals"', "journal.path"),
        ('master_key = "master.key"', 'master_key = "other.key"', "sealing.master_key"),
        ('path = "blocks"', 'path = "bricks"', "backends.disk.path"),
        ("calls = 64", "calls = 65", "backends.disk.calls"),
    ],
)
def test_what_takes_a_restart_is_refused_by_name(
    endpoint: Endpoint, config: Path, line: str, instead: str, where: str
) -> None:
    change_config(endpoint.dir, line, instead)
    assert f"{config}: {where}: needs a restart of `entrepot serve`" in refused(endpoint)


def test_a_changed_file_is_taken_over_by_itself(endpoint: Endpoint, config: Path) -> None:
    before = version_of(endpoint)
    config.write_text(config.read_text().replace("expire_days = 7.0", "expire_days = 9.0"))
    until(lambda: version_of(endpoint) != before, "another version")
    until(lambda: len(versions(endpoint)) == 1, "one version everywhere")


def test_a_hangup_has_it_taken_over(endpoint: Endpoint, config: Path) -> None:
    before = version_of(endpoint)
    config.write_text(config.read_text().replace('level = "info"', 'level = "debug"'))
    serving = json.loads((endpoint.dir / "run" / "serve.lock").read_text())
    os.kill(serving["pid"], signal.SIGHUP)
    until(lambda: version_of(endpoint) != before, "another version")


def test_a_new_backend_and_policy_are_written_to_at_once_and_read_by_all(endpoint: Endpoint, tmp_path: Path) -> None:
    s3 = client(endpoint)
    config = endpoint.dir / "entrepot.toml"
    before = config.read_text()
    s3.put_object(Bucket="far", Key="early", Body=b"early" * 1000)
    config.write_text(before + VAULT)
    reload(endpoint)
    held = files(endpoint.dir / "vault")
    s3.put_object(Bucket="far", Key="late", Body=b"late" * 500_000)
    assert files(endpoint.dir / "vault") > held
    for _ in range(8):  # by each of the workers
        fresh = client(endpoint)
        assert fresh.get_object(Bucket="far", Key="late")["Body"].read() == b"late" * 500_000
        assert fresh.get_object(Bucket="far", Key="early")["Body"].read() == b"early" * 1000
    # it cannot leave while it is written to, nor while it holds something
    config.write_text(before)
    assert "backends.vault: is still written to, by far" in refused(endpoint)
    config.write_text(before + VAULT.replace('["vault"]', '["disk"]'))
    reload(endpoint)
    config.write_text(before)
    assert "backends.vault: still holds 1 block(s)" in refused(endpoint)
    s3.delete_object(Bucket="far", Key="late")

    def gone() -> bool:
        return run_entrepot("reload", str(endpoint.dir), check=False).returncode == 0

    until(gone, "an empty vault")
    assert client(endpoint).get_object(Bucket="far", Key="early")["Body"].read() == b"early" * 1000


def test_a_new_backend_that_cannot_be_opened_is_refused(endpoint: Endpoint, config: Path) -> None:
    config.write_text(config.read_text() + VAULT.replace('"vault"\n[', '"entrepot.toml"\n[').replace("far", "never"))
    assert f"{config}: backends.vault: " in refused(endpoint)
    config.write_text(config.read_text().replace("vault", "other"))
    assert f"{config}: backends.other: " in refused(endpoint)


def test_an_edit_refused_for_a_reason_that_may_pass_is_tried_again_and_told_of_once(
    endpoint: Endpoint, config: Path
) -> None:
    before = version_of(endpoint)
    late = VAULT.replace('"vault"\n[', '"mount/late"\n[').replace("vault", "late").replace("far", "later")
    config.write_text(config.read_text() + late)
    wanted = load_text(config.read_text(), endpoint.dir).version
    said = refused(endpoint)
    assert f"{config}: backends.late: " in said
    assert f"version {before} stays in force for now: the file is tried again automatically" in said
    until(lambda: watch(endpoint, "/healthz")[1]["config_refused"]["tries"] > 1, "another try")
    shown = run_entrepot("status", str(endpoint.dir)).stdout
    assert f"config: entrepot.toml differs from the config in force ({before}): refused, and retried in " in shown
    assert "backends.late: " in shown
    told = [each for each in lines(endpoint) if each["event"] == "config refused" and "backends.late" in each["why"]]
    # by the one who asked; and perhaps before, when the change was seen
    assert 1 <= len([each for each in told if each["level"] == "error"]) <= 2
    (endpoint.dir / "mount").mkdir()
    until(lambda: versions(endpoint) == {wanted}, "the edit to be taken over")
    assert "config_refused" not in watch(endpoint, "/healthz")[1]
    until(lambda: counted(endpoint, "entrepot_config_refused") == 0, "the gauge")
    assert json.loads(run_entrepot("status", str(endpoint.dir), "--json").stdout)["config_refused"] is None
    config.write_text(config.read_text().replace('["late"]', '["disk"]'))
    reload(endpoint)  # nobody writes there any more, so that it may leave


def test_processes_that_are_killed_in_the_middle_run_what_is_in_force(endpoint: Endpoint, config: Path) -> None:
    text = config.read_text()
    chance = random.Random(7)
    for days in range(20, 26):
        config.write_text(text.replace("expire_days = 7.0", f"expire_days = {days}.0"))
        asking = subprocess.Popen([*ENTREPOT, "reload", str(endpoint.dir), "--json"], stdout=subprocess.PIPE)
        time.sleep(chance.uniform(0.2, 1.2))
        processes = watch(endpoint, "/healthz")[1]["processes"]
        os.kill(processes[chance.choice(sorted(processes.keys() - {"committer"}))]["pid"], signal.SIGKILL)
        asking.communicate(timeout=300)
    told = reload(endpoint)
    until(lambda: watch(endpoint, "/healthz")[0] == 200, "all well")
    assert versions(endpoint) == {told["version"]}
    shown = run_entrepot("config", "show", "--site", str(endpoint.dir), "--effective").stdout
    assert "expire_days = 25.0" in shown


def test_nobody_reloads_a_site_that_is_not_served(tmp_path: Path) -> None:
    new_site(tmp_path / "site")
    done = run_entrepot("reload", str(tmp_path / "site"), check=False)
    assert done.returncode == 1
    assert "is not being served" in done.stderr


def test_settings_that_a_reload_takes_over_ask_for_no_restart() -> None:
    old = load_text(default_text(), Path("/site"))
    text = default_text().replace('level = "info"', 'level = "error"').replace("expire_days = 7.0", "expire_days = 1.0")
    text = text.replace("recheck_seconds = 3600.0", "recheck_seconds = 60.0")
    assert settings_needing_restart(old, load_text(text + VAULT, Path("/site"))) == []
    assert settings_needing_restart(
        old, load_text(text.replace("requests = true", "requests = false"), Path("/site"))
    ) == ["log.requests"]


def test_how_a_bucket_is_reached_asks_for_no_restart_but_which_one_it_is_does() -> None:
    bucket = '[backends.cloud]\ntype = "s3"\ncluster = "home"\nbucket = "blocks"\nprofile = "old"\n'
    old = load_text(default_text() + bucket, Path("/site"))

    def asked(edited: str) -> list[str]:
        return settings_needing_restart(old, load_text(default_text() + edited, Path("/site")))

    reached = bucket.replace('profile = "old"', 'access_key = "K"\nsecret_key_file = "secret"\ncalls = 5')
    assert asked(reached + 'endpoint = "https://s3.example.org"\ndrain = true\n') == []
    assert asked(bucket.replace('"blocks"', '"bricks"')) == ["backends.cloud.bucket"]
    assert asked(bucket + 'prefix = "below"\n') == ["backends.cloud.prefix"]


def test_a_second_cluster_asks_for_no_restart_unless_the_processes_stand_there() -> None:
    old = load_text(default_text(), Path("/site"))
    two = default_text() + "[clusters.cloud]\n"
    at_home, moved = (two.replace("domains = []", f'domains = []\ncluster = "{name}"') for name in ("home", "cloud"))
    assert settings_needing_restart(old, load_text(at_home, Path("/site"))) == []
    assert settings_needing_restart(old, load_text(moved, Path("/site"))) == ["site.cluster"]
