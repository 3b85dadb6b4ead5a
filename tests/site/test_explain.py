"""`entrepot explain` for keys, versions, sizes and users that exist, and for those that do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.cli.text.explain import to_dict, to_text
from gateway.engine.types import ExpectedDigests, ObjectMeta
from gateway.errors import InvalidArgument, NoSuchBucket, NoSuchUser
from gateway.site.admin.explain import explain
from gateway.site.admin.lost_objects import find_losses
from gateway.site.site import Site
from tests.site.test_write_targets import MORE, Bytes, put, root


@pytest.fixture
async def site(tmp_path: Path, new_folder: Path) -> AsyncIterator[Site]:
    with (new_folder / "entrepot.toml").open("a") as config:
        config.write(MORE.format(vault=tmp_path / "vault").replace('user = "nobody-yet"', 'bucket = "elsewhere"'))
    async with await Site.open(new_folder) as opened:
        yield opened


async def test_where_a_key_would_go_depends_on_how_much_is_written(site: Site) -> None:
    await root(site)
    assert explain(site, "s3://tree/new").target.policy == "far"
    assert "written now in parts: policy far (rules[1]" in "\n".join(to_text(explain(site, "s3://tree/new"), {}))
    assert explain(site, "s3://tree/new", size=10).target.policy == "default"
    await put(site, "there", b"x" * 10)
    there = explain(site, "s3://tree/there")
    assert there.stored is not None
    assert (there.size, there.target.policy, there.stored.groups[0].backends) == (10, "default", ("disk",))
    assert "written now as 10 bytes at once: policy default" in "\n".join(to_text(there, {}))
    assert explain(site, "s3://tree/there", size=1 << 20).target.policy == "far"


async def test_versions_and_delete_markers_are_told_apart(site: Site) -> None:
    caller = await root(site)
    await site.engine.set_versioning(caller, "tree", 1)
    first = await site.engine.put(caller, "tree", b"key", Bytes(b"1"), ExpectedDigests(size=1), ObjectMeta())
    await site.engine.put(caller, "tree", b"key", Bytes(b"22"), ExpectedDigests(size=2), ObjectMeta())
    await site.engine.delete(caller, "tree", b"key")
    marker = explain(site, "s3://tree/key")
    assert (marker.delete_marker, marker.size, marker.stored) == (True, None, None)
    assert "a delete marker (version " in "\n".join(to_text(marker, {}))
    older = explain(site, "s3://tree/key", version=str(first.version))
    assert older.stored is not None
    assert (older.size, older.stored.blocks) == (1, 1)
    with pytest.raises(InvalidArgument):
        explain(site, "s3://tree/key", version="what?")


async def test_what_does_not_exist_is_reported_or_refused(site: Site) -> None:
    await root(site)
    assert "there is no such object" in "\n".join(to_text(explain(site, "s3://tree/a/directory/"), {}))
    with pytest.raises(NoSuchBucket):
        explain(site, "s3://none/key")
    with pytest.raises(NoSuchUser):
        explain(site, "s3://tree/key", user="nobody-yet")
    with pytest.raises(InvalidArgument, match="there is no cluster 'mars'"):
        explain(site, "s3://tree/key", cluster="mars")
    for address in ("s3://tree", "s3://tree/", "tree/key", "s3:///key"):
        with pytest.raises(InvalidArgument, match="is not the address of an object"):
            explain(site, address)


async def test_a_copy_on_a_lost_backend_is_reported_and_nothing_is_stored_there(site: Site) -> None:
    await root(site)
    await put(site, "far", b"x" * 5_000)
    await find_losses(site, "vault", forget=True)
    explanation = explain(site, "s3://tree/far")
    assert explanation.stored is not None
    (group,) = explanation.stored.groups
    (option,) = group.order
    assert option.backend == "vault"
    assert option.why.endswith("it was given up as lost")
    assert (explanation.target.ack, explanation.target.keep) == ((), ())
    assert "refused: policy 'far' awaits copies on vault, which is lost" in "\n".join(to_text(explanation, {}))


async def test_the_keys_of_the_json_output_stay_as_they_are(site: Site) -> None:
    await root(site)
    await put(site, "key", b"x" * 10)
    shown = to_dict(explain(site, "s3://tree/key"), {})
    assert list(shown) == ["address", "version", "size", "delete_marker", "would_go", "lies", "backend_troubles"]
    assert list(shown["would_go"]) == [
        "size", "policy", "because", "ack", "ack_copies", "keep", "refused", "within_seconds"
    ]  # fmt: skip
    assert list(shown["lies"]) == ["blocks", "only_the_first", "work", "groups"]
    assert list(shown["lies"]["groups"][0]) == ["blocks", "policy", "on", "should", "reads_from", "order"]
    assert list(shown["lies"]["groups"][0]["order"][0]) == ["backend", "why"]
