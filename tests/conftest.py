"""What every test may ask for: one running endpoint, shared by the whole run, and hypothesis without a clock."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.endpoint import Endpoint, started

# No test fails on a clock: a busy machine is no defect. CI draws the same examples each time.
settings.register_profile(
    "entrepot",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "entrepot"))


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A server over a fresh site; or, to try the tests themselves on another S3, the one that
    ENTREPOT_TEST_ENDPOINT names, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    base: Path = tmp_path_factory.mktemp("endpoint")
    if url := os.environ.get("ENTREPOT_TEST_ENDPOINT"):
        access_key, secret_key = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        yield Endpoint(url, access_key, secret_key, "us-east-1", base, base / "log")
        return
    with started(base / "site") as (running, _):
        yield running
    faults = [line for line in running.log.read_text().splitlines() if is_own_fault(line)]
    assert not faults, f"the server wrote what no client may ever cause: {faults[:5]}"
    assert running.secret_key not in running.log.read_text()


def is_own_fault(line: str) -> bool:
    """Whether a line of a server's log tells of an error of its own: also one that is no JSON, as a traceback is."""
    try:
        fields = json.loads(line)
    except ValueError:
        return True
    # 501 answers what was asked for and is not built.
    return bool(fields["level"] == "error" or (fields.get("status", 0) >= 500 and fields["status"] != 501))
