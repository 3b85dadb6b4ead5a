"""A page costs in proportion to what it tells: counted in steps of SQLite's virtual machine, which also counts what is
stepped over, and not in rows that come back."""

from __future__ import annotations

import pytest

from gateway.journal.tables import ENTRY, PART, UPLOAD, Part, Upload
from gateway.namespace.read import directory, listing, listing_uploads, listing_versions
from gateway.namespace.read.pages import Page, VersionPage
from gateway.namespace.version_ids import encode_version_id
from tests.namespace import volume
from tests.namespace.world import Mirror

FLAT = 60
"""Steps a key of a flat listing."""
MANY = [pytest.param(100_000, marks=pytest.mark.slow), pytest.param(1_000_000, marks=pytest.mark.soak)]


async def cost(mirror: Mirror, bucket, **asked) -> tuple[float, Page]:
    """Steps for each item of a page, and the page."""
    mirror.count_steps(True)
    page = await listing.list_objects(mirror, bucket, **asked)
    steps = mirror.steps
    mirror.count_steps(False)
    return steps / max(1, len(page.keys) + len(page.prefixes)), page


async def version_cost(mirror: Mirror, bucket, **asked) -> tuple[float, VersionPage]:
    mirror.count_steps(True)
    page = await listing_versions.list_versions(mirror, bucket, **asked)
    steps = mirror.steps
    mirror.count_steps(False)
    return steps / max(1, len(page.versions) + len(page.prefixes)), page


def flat(count: int) -> tuple[Mirror, object]:
    mirror = Mirror()
    bucket = volume.bucket(mirror, count)
    volume.files(mirror, volume.ROOT, (b"key-%08d" % n for n in range(count)), 1000)
    return mirror, bucket


@pytest.mark.parametrize("count", [10_000, *MANY])
async def test_a_page_of_a_flat_bucket_costs_the_same_anywhere_and_at_any_size(count):
    mirror, bucket = flat(count)
    for position in (0, count // 3, count - 1001):
        each, page = await cost(mirror, bucket, after=b"key-%08d" % position)
        assert len(page.keys) == 1000 and page.keys[0].key == b"key-%08d" % (position + 1)
        assert each < FLAT
    each, page = await cost(mirror, bucket, prefix=b"key-%05d" % (count // 2000), limit=10)
    assert len(page.keys) == 10 and each < 2 * FLAT
    each, page = await version_cost(mirror, bucket, after_key=b"key-%08d" % (count // 2))
    assert len(page.versions) == 1000 and each < 3 * FLAT


@pytest.mark.parametrize("count", MANY)
async def test_delete_markers_are_never_met_however_many(count):
    mirror = Mirror()
    bucket = volume.bucket(mirror, 2)
    dead = (volume.entry(volume.ROOT, b"dead-%08d" % n, 0, dead=1, version=n + 1) for n in range(count))
    mirror.fill(ENTRY, dead)
    volume.files(mirror, volume.ROOT, [b"a", b"z"], 10)
    mirror.count_steps(True)
    page = await listing.list_objects(mirror, bucket)
    assert [each.key for each in page.keys] == [b"a", b"z"] and mirror.steps < 500
    assert [each.name for each in directory.read_directory(mirror, volume.ROOT)] == [b"a", b"z"]
    assert mirror.steps < 1000
    each, page = await version_cost(mirror, bucket, after_key=b"dead-%08d" % (count // 2))
    assert len(page.versions) == 1000 and each < 3 * FLAT


@pytest.mark.slow
async def test_100_000_dead_directories_are_never_met():
    mirror = Mirror()
    bucket = volume.bucket(mirror, 1)
    mirror.fill(ENTRY, (volume.entry(volume.ROOT, b"d%06d/" % n, n + 100, dead=1, version=0) for n in range(100_000)))
    volume.files(mirror, volume.ROOT, [b"z"], 10)
    for delimiter in (b"", b"/", b"-"):
        mirror.count_steps(True)
        page = await listing.list_objects(mirror, bucket, delimiter=delimiter)
        assert [each.key for each in page.keys] == [b"z"] and mirror.steps < 500


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
async def test_directories_of_one_file_cost_the_same_however_many(count):
    mirror = Mirror()
    bucket = volume.bucket(mirror, count, subdirs=count)
    volume.directories_of_one(mirror, volume.ROOT, (b"d%06d/" % n for n in range(count)), 1000)
    for after in (b"", b"d%06d/x" % (count // 2 - 1)):
        mirror.queries = 0
        each, page = await cost(mirror, bucket, after=after)
        assert len(page.keys) == 1000 and each < 4 * FLAT
        assert mirror.queries < 40, "children are fetched many directories at a time"
        each, page = await cost(mirror, bucket, after=after, delimiter=b"/")
        assert len(page.prefixes) == 1000 and each < FLAT
        each, page = await cost(mirror, bucket, after=after, delimiter=b"x")
        assert len(page.prefixes) == 1000 and each < 8 * FLAT
    each, page = await version_cost(mirror, bucket)
    assert len(page.versions) == 1000 and each < 6 * FLAT


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 1000])
async def test_what_a_delimiter_rolls_up_is_stepped_over(size):
    """Not by fetching it: groups of 1,000 keys cost as much a prefix as groups of 10, but for a look at a few keys."""
    mirror = Mirror()
    bucket = volume.bucket(mirror, 100 * size)
    names = (b"g%03d-%04d" % (group, n) for group in range(100) for n in range(size))
    volume.files(mirror, volume.ROOT, names, 1000)
    each, page = await cost(mirror, bucket, delimiter=b"-")
    assert len(page.prefixes) == 100 and each < 20 * FLAT


async def test_a_slice_gives_way_to_others():
    mirror, bucket = flat(3000)
    import asyncio

    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await asyncio.sleep(0)
    await listing.list_objects(mirror, bucket, limit=2900)
    task.cancel()
    assert turns >= 3


async def test_open_uploads_cost_only_the_page_that_tells_them():
    """So their number needs no limit: no process keeps anything for an open upload but its rows."""
    steps = {}
    for count in (2_000, 50_000):
        mirror = Mirror()
        bucket = volume.bucket(mirror, 0)
        mirror.fill(
            UPLOAD,
            (Upload("b", b"d%d/%08d" % (n % 2, n), n + 10, 0, 7, 1, 0, 1, "", "", b"", b"", b"") for n in range(count)),
        )
        mirror.fill(PART, (Part(n + 10, 1, n + 10**6, 5, 0, 0, "e" * 32, b"", "", 0) for n in range(count)))
        mirror.count_steps(True)
        page = await listing_uploads.list_uploads(mirror, bucket, limit=100)
        assert len(page.uploads) == 100
        page = await listing_uploads.list_uploads(mirror, bucket, b"", b"/")
        assert page.prefixes == [b"d0/", b"d1/"]
        parts = listing_uploads.list_parts(mirror, bucket, b"d1/%08d" % (count - 1), encode_version_id(count + 9))
        assert len(parts.parts) == 1
        steps[count] = mirror.steps
    assert steps[50_000] < 1.1 * steps[2_000]
