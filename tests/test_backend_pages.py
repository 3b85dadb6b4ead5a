"""The pages about MinIO, AWS and Ceph: each of their commands is run, against a server that can be had."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endpoint import ENTREPOT, command_environment
from tests.pages import ROOT, fences, steps
from tests.reader import MARK, matches
from tests.servers.running import S3Server
from tests.servers.shared import shared_folder

NAMED = {
    "minio": "http://minio.lab.example:9000",
    "aws": "",
    "ceph": "http://rgw.lab.example:7480",
}
"""The address that a page names, for which the test's is put in."""


def environment(folder: Path) -> dict[str, str]:
    """Nobody's own keys, and the commands that the page names."""
    entrepot = folder / "bin" / "entrepot"
    entrepot.parent.mkdir()
    python, _, code = ENTREPOT
    entrepot.write_text(f"#!{python}\n{code}\n")
    entrepot.chmod(0o755)
    clean = {name: value for name, value in command_environment().items() if not re.match("AWS_|.*_ROOT_", name)}
    return clean | {
        "PATH": f"{entrepot.parent}:{Path(sys.executable).parent}:{clean['PATH']}",
        "HOME": str(folder),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_PAGER": "",
    }


def run(page: str, folder: Path, url: str, more: dict[str, str]) -> None:
    """Type what the page says, and see that it prints what the page says."""
    (block,) = [each for each in fences(ROOT / "docs" / f"backends-{page}.md") if each.language == "console"]
    typed = steps(block)
    script = "set -euo pipefail\n" + "".join(f"echo '{MARK} {n}'\n{step.command}\n" for n, step in enumerate(typed))
    done = subprocess.run(
        ["bash", "-c", script.replace(NAMED[page], url) if NAMED[page] else script],
        cwd=folder, env=environment(folder) | more, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    printed = re.split(rf"^{MARK} \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    for step, each in zip(typed, printed, strict=True):
        assert matches(step.prints, each), f"$ {step.command}\nshould print {step.prints}, but printed\n{each}"


def policy(page: str) -> str:
    (found,) = [each.text for each in fences(ROOT / "docs" / f"backends-{page}.md") if each.language == "json"]
    return found


@pytest.mark.slow
def test_the_page_about_minio(tmp_path: Path, moto_server: S3Server) -> None:
    keys = {
        "AWS_ACCESS_KEY_ID": "admin",
        "AWS_SECRET_ACCESS_KEY": "admin-secret",
        "MINIO_SECRET_KEY": "entrepot-secret",
    }
    run("minio", tmp_path, moto_server.url, keys)
    assert (tmp_path / "site" / "minio.secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_the_page_about_aws(tmp_path: Path, moto_server: S3Server) -> None:
    (tmp_path / "policy.json").write_text(policy("aws"))
    keys = {"AWS_ACCESS_KEY_ID": "admin", "AWS_SECRET_ACCESS_KEY": "admin-secret", "AWS_DEFAULT_REGION": "us-east-1"}
    run("aws", tmp_path, moto_server.url, keys | {"AWS_ENDPOINT_URL": moto_server.url})


@pytest.mark.slow
def test_the_page_about_ceph(tmp_path: Path, radosgw_server: S3Server) -> None:
    ceph = {"CEPH_CONF": str(shared_folder() / "data" / "ceph.conf"), "CEPH_ARGS": "--name client.rgw"}
    run("ceph", tmp_path, radosgw_server.url, ceph)
    assert (tmp_path / "site" / "ceph.secret").stat().st_mode & 0o777 == 0o600
