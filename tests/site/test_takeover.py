"""`entrepot takeover` while one store reports a forged marker. These tests run in process and serve no site."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.base import Fence, IssuedToken
from gateway.site.admin.takeover import HistoryComparison, take_over
from gateway.site.site import Site
from tests.new_sites import new_site
from tests.site.clouds import Cloud
from tests.site.running import add_cloud

FORGED = Fence((1 << 63) - 1, "ab" * 16, 7, "cd" * 32, 0, "", (IssuedToken((1 << 63) - 1, "ab" * 16, 3, "ef" * 32),))


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    return Cloud.instead_of_buckets(monkeypatch)


@pytest.fixture
async def site(tmp_path: Path, cloud: Cloud) -> Path:
    """The folder of a site with two backends, a folder and a bucket, which both bear its token."""
    folder = new_site(tmp_path / "site")
    add_cloud(folder, "http://cloud.invalid")
    async with await Site.open(folder, "client"):
        assert cloud.held.fence is not None
    return folder


async def take_over_in(folder: Path) -> HistoryComparison:
    async with await Site.open(folder, "cli", with_storage=False) as opened:
        return await take_over(opened, confirmed=True)


async def test_a_forged_fence_on_a_cloud_is_ended_by_a_takeover_and_does_not_use_up_the_counters(
    site: Path, cloud: Cloud
) -> None:
    cloud.held = cloud.held._replace(fence=FORGED)
    async with await Site.open(site, "client") as opened:
        assert "another copy of this site's folder" in opened.storage.troubles()["bucket"].why
    assert cloud.held.fence == FORGED
    comparison = await take_over_in(site)
    assert {each.backend: each.state for each in comparison.backends} == {"disk": "ours", "bucket": "parted"}
    assert 0 < comparison.counter < 10
    async with await Site.open(site, "client") as opened:
        assert opened.storage.troubles() == {}
    assert cloud.held.fence is not None
    assert comparison.counter <= cloud.held.fence.counter < 10


async def test_a_later_incarnation_on_a_cloud_alone_does_not_block_a_takeover(site: Path, cloud: Cloud) -> None:
    cloud.held = cloud.held._replace(incarnation=9)
    comparison = await take_over_in(site)
    assert {each.backend: each.state for each in comparison.backends} == {"disk": "ours", "bucket": "away"}
    assert "incarnation 9" in next(each.why for each in comparison.backends if each.backend == "bucket")
