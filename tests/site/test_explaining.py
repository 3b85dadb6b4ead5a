"""`entrepot explain`: what is said of keys, versions, sizes and users that are there, and of those that are not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.engine.types import Meta, Promised
from gateway.errors import InvalidArgument, NoSuchBucket, NoSuchUser
from gateway.site.explaining import explain, spell
from gateway.site.founding import found
from gateway.site.losing import losses
from gateway.site.site import Site
from tests.site.test_placing import MORE, Bytes, put, root


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    founded = await found(tmp_path / "site")
    with (founded.folder / "entrepot.toml").open("a") as config:
        config.write(MORE.format(vault=tmp_path / "vault").replace('user = "nobody-yet"', 'bucket = "elsewhere"'))
    async with await Site.open(founded.folder) as opened:
        yield opened


async def test_where_a_key_would_go_depends_on_how_much_is_written(site: Site) -> None:
    await root(site)
    assert explain(site, "s3://tree/new")["would_go"]["policy"] == "far"
    assert "written now in parts: policy far (rules[1]" in spell(explain(site, "s3://tree/new"))
    assert explain(site, "s3://tree/new", size=10)["would_go"]["policy"] == "default"
    await put(site, "there", b"x" * 10)
    told = explain(site, "s3://tree/there")
    assert (told["size"], told["would_go"]["policy"], told["lies"]["groups"][0]["on"]) == (10, "default", ["disk"])
    assert "written now as 10 bytes at once: policy default" in spell(told)
    assert explain(site, "s3://tree/there", size=1 << 20)["would_go"]["policy"] == "far"


async def test_versions_and_delete_markers_are_told_apart(site: Site) -> None:
    caller = await root(site)
    await site.engine.set_versioning(caller, "tree", 1)
    first = await site.engine.put(caller, "tree", b"key", Bytes(b"1"), Promised(size=1), Meta())
    await site.engine.put(caller, "tree", b"key", Bytes(b"22"), Promised(size=2), Meta())
    await site.engine.delete(caller, "tree", b"key")
    told = explain(site, "s3://tree/key")
    assert (told["delete_marker"], told["size"], told["lies"]) == (True, None, None)
    assert "a delete marker (version " in spell(told)
    told = explain(site, "s3://tree/key", version=str(first.version))
    assert (told["size"], told["lies"]["blocks"]) == (1, 1)
    with pytest.raises(InvalidArgument):
        explain(site, "s3://tree/key", version="what?")


async def test_what_is_nowhere_is_said_to_be(site: Site) -> None:
    await root(site)
    assert "there is no such object" in spell(explain(site, "s3://tree/a/directory/"))
    with pytest.raises(NoSuchBucket):
        explain(site, "s3://none/key")
    with pytest.raises(NoSuchUser):
        explain(site, "s3://tree/key", user="nobody-yet")
    with pytest.raises(InvalidArgument, match="there is no cluster 'mars'"):
        explain(site, "s3://tree/key", cluster="mars")
    for address in ("s3://tree", "s3://tree/", "tree/key", "s3:///key"):
        with pytest.raises(InvalidArgument, match="no address of an object"):
            explain(site, address)


async def test_a_copy_that_was_given_up_is_said_to_be_one_and_nothing_goes_there(site: Site) -> None:
    await root(site)
    await put(site, "far", b"x" * 5_000)
    await losses(site, "vault", forget=True)
    (group,) = explain(site, "s3://tree/far")["lies"]["groups"]
    ((name, why),) = [each.values() for each in group["order"]]
    assert name == "vault"
    assert why.endswith("it was given up as lost")
    told = explain(site, "s3://tree/far")
    assert (told["would_go"]["ack"], told["would_go"]["keep"]) == ([], [])
    assert "refused: policy 'far' awaits copies on vault, which is lost" in spell(told)
