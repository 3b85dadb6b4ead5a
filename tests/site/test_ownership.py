"""Whose a site is: root leaves nothing in another user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.config import load
from gateway.errors import Misconfigured
from gateway.site import ownership
from gateway.site.ownership import require_owner
from gateway.site.serve_lock import is_served, read_serving
from gateway.site.site import Site
from tests.new_sites import new_site

SOMEBODY = 54_321


def become_root_over_anothers(site: Path, patch: pytest.MonkeyPatch) -> None:
    """By giving the journal away where these tests run as root, and by playing root where they do not."""
    if os.geteuid() == 0:
        os.chown(site / "journal" / "journal.db", SOMEBODY, -1)
    else:
        patch.setattr(ownership.os, "geteuid", lambda: 0)  # type: ignore[attr-defined]
        patch.setattr(ownership, "_owner_of_new_file", lambda folder: 0)


async def test_root_is_refused_at_another_users_site_and_leaves_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_site(tmp_path / "site")
    before = set(site.rglob("*"))
    become_root_over_anothers(site, monkeypatch)
    with pytest.raises(Misconfigured, match=r"belongs to user .*: do this as that user"):
        await Site.open(site, kind="cli")
    assert set(site.rglob("*")) == before


async def test_where_a_mount_gives_every_file_to_one_user_root_is_as_good_as_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_site(tmp_path / "site")
    become_root_over_anothers(site, monkeypatch)
    theirs = (site / "journal" / "journal.db").stat().st_uid
    monkeypatch.setattr(ownership, "_owner_of_new_file", lambda folder: theirs)
    require_owner(site, load(site))


def test_who_only_asks_who_serves_a_folder_leaves_nothing_there(tmp_path: Path) -> None:
    assert read_serving(tmp_path) is None
    assert not is_served(tmp_path)
    assert not list(tmp_path.iterdir())
