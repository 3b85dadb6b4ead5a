"""How a backend is reached: what takes a new opening, and what does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.site.storage.connection_params import connection_params
from gateway.topology import BackendPlace, S3Place


def place(s3: S3Place | None) -> BackendPlace:
    return BackendPlace("far", "local" if s3 is None else "s3", "home", 8, 60.0, s3=s3)


def test_where_it_stands_and_whether_it_drains_does_not_matter_to_who_opens_it_but_its_limits_do() -> None:
    far = place(S3Place("blocks"))
    assert connection_params(replace(far, cluster="away", drain=True)) == connection_params(far)
    assert connection_params(replace(far, calls=9)) != connection_params(far)
    assert connection_params(place(S3Place("blocks", access_key="K"))) != connection_params(far)


def test_a_file_that_was_replaced_is_another_reach(tmp_path: Path) -> None:
    secret, ca = tmp_path / "secret", tmp_path / "ca.pem"
    far = place(S3Place("blocks", access_key="K", secret_key_file=str(secret), ca_file=str(ca)))
    found = [connection_params(far)]
    for path in (secret, ca, secret):
        new = tmp_path / "new"
        new.write_text("x")
        new.replace(path)
        found.append(connection_params(far))
    assert len(set(found)) == len(found)
    assert connection_params(far) == found[-1]


def test_a_profile_that_was_changed_is_another_reach_where_it_may_have_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    places = [place(S3Place("blocks", profile="p")), place(S3Place("blocks")), place(S3Place("b", access_key="K"))]
    places.append(place(None))
    before = [connection_params(each) for each in places]
    shared.write_text("[p]\n")
    assert [connection_params(each) != then for each, then in zip(places, before, strict=True)] == [
        True,
        True,
        False,
        False,
    ]
