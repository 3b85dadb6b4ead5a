"""`entrepot init`: what it creates, what it refuses, and that it can be interrupted anywhere and run again."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.config import default_text
from gateway.errors import EntrepotError, InvalidArgument, Misconfigured
from gateway.site.admin import create_site as create_site_module
from gateway.site.admin.create_site import create_site
from gateway.site.admin.key_rotation import list_ring_keys
from gateway.site.admin.users import list_users
from gateway.site.site import Site
from tests.backends.mounts import mounted
from tests.endpoint import run_entrepot


async def test_a_new_site_is_private_and_complete(tmp_path: Path) -> None:
    result = await create_site(tmp_path / "site", access_key="MYKEY", secret="my/secret+key")
    folder = tmp_path / "site"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("master.key", "root.secret", "entrepot.toml"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert (folder / "entrepot.toml").read_text() == default_text()
    assert (folder / "root.secret").read_text() == "my/secret+key\n"
    async with await Site.open(folder) as site:
        assert site.id == result.site
        credential = site.credentials.find("MYKEY")
        assert credential is not None
        assert (credential.secret, credential.user, credential.root) == ("my/secret+key", "root", True)
        assert site.credentials.find("NOBODYS") is None
        (ring_key,) = list_ring_keys(site)
        assert (ring_key.mode, ring_key.active) == ("aes-256-gcm", True)


async def test_a_site_may_keep_its_blocks_readable(tmp_path: Path) -> None:
    await create_site(tmp_path / "site", mode="tagged")
    async with await Site.open(tmp_path / "site", with_storage=False) as site:
        assert [each.mode for each in list_ring_keys(site)] == ["tagged"]


async def test_a_folder_that_holds_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years of work")
    with pytest.raises(Misconfigured, match="is neither empty nor a site"):
        await create_site(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


async def test_init_that_was_killed_while_it_made_its_mark_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "..unfinished.new").write_text("in")
    await create_site(tmp_path)
    async with await Site.open(tmp_path) as site:
        assert len(list_users(site)) == 1
    assert not (tmp_path / "..unfinished.new").exists()


async def test_a_site_is_not_made_twice(tmp_path: Path) -> None:
    await create_site(tmp_path / "site")
    with pytest.raises(Misconfigured, match="is a site already"):
        await create_site(tmp_path / "site")


async def test_half_a_root_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="go together"):
        await create_site(tmp_path / "site", access_key="MYKEY")
    with pytest.raises(InvalidArgument, match="8 to 128"):
        await create_site(tmp_path / "site", access_key="MYKEY", secret="short")
    assert not (tmp_path / "site").exists()


async def test_a_name_or_mode_that_cannot_be_leaves_nothing_behind(tmp_path: Path) -> None:
    for wrong in ({"name": "A B"}, {"mode": "none"}, {"name": 'x"\nregion = "y'}):
        with pytest.raises(Misconfigured, match=r"entrepot.toml: "):
            await create_site(tmp_path / "site", **wrong)
        assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("size", ["4k", "20m"])
def test_a_disk_that_is_too_small_is_refused_and_not_touched(tmp_path: Path, size: str) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        result = run_entrepot("init", str(tmp_path / "disk"), check=False)
        assert result.returncode == 1
        assert f"cannot create a site in {tmp_path / 'disk'}: its disk has " in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert not list((tmp_path / "disk").iterdir())
        subprocess.run(["mount", "-o", "remount,size=256m", str(tmp_path / "disk")], check=True)
        run_entrepot("init", str(tmp_path / "disk"))
        assert run_entrepot("fsck", str(tmp_path / "disk")).stdout.endswith("clean\n")


def test_a_disk_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "ro", "tmpfs"):
        result = run_entrepot("init", str(tmp_path / "disk" / "site"), check=False)
    assert result.returncode == 1
    assert result.stderr == f"entrepot: cannot create a site in {tmp_path}/disk/site: Read-only file system\n"


async def test_blocks_of_another_site_are_not_taken_over(tmp_path: Path) -> None:
    await create_site(tmp_path / "one")
    other = tmp_path / "two"
    text = default_text().replace('path = "blocks"', f'path = "{tmp_path / "one" / "blocks"}"')
    other.mkdir()
    (other / ".unfinished").write_text("init\n")
    (other / "entrepot.toml").write_text(text)
    with pytest.raises(Misconfigured, match="it belongs to site"):
        await create_site(other)
    async with await Site.open(tmp_path / "one"):
        pass  # the first site is unchanged


STEPS = [
    "_write_config",
    "_load_or_create_master_keys",
    "open_journal",
    "_add_first_ring_key",
    "write_file",
    "_add_root_user",
    "_register_all_backends",
    "mark_finished",
]


# `create_site` changes nothing between two steps, so an end before a step is an end after the step before it
@pytest.mark.slow
@pytest.mark.parametrize(("step", "when"), [(STEPS[0], "before"), *((step, "after") for step in STEPS)])
async def test_init_that_was_interrupted_anywhere_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    folder = tmp_path / "site"
    with monkeypatch.context() as cut:
        cut.setattr(create_site_module, step, _cut(getattr(create_site_module, step), when))
        with pytest.raises(Cut):
            await create_site(folder)
    if step != "mark_finished" or when == "before":
        with pytest.raises(Misconfigured, match=r"was interrupted|cannot be read"):
            await Site.open(folder)
        await create_site(folder)
    async with await Site.open(folder) as site:
        (root,) = list_users(site)
        secret = (folder / "root.secret").read_text().strip()
        credential = site.credentials.find(root.access_keys[0])
        assert credential is not None
        assert credential.secret == secret
        assert len(list_ring_keys(site)) == 1
        assert site.storage.backends


class Cut(EntrepotError, wire_code="Cut"):
    """As if the process had been killed."""


def _cut(step: Any, when: str) -> Any:
    """*step*, with the process dying before or after it."""
    if when == "before":

        async def before(*_: Any, **__: Any) -> None:
            raise Cut

        def before_now(*_: Any, **__: Any) -> None:
            raise Cut

        return before if _is_async(step) else before_now

    async def after(*values: Any, **named: Any) -> None:
        got = await step(*values, **named)
        if step.__name__ == "open_journal":  # a dead process's session ends with its connection and lease
            journal, committer = got
            await journal.close()
            await committer.release()
        raise Cut

    def after_now(*values: Any, **named: Any) -> None:
        step(*values, **named)
        raise Cut

    return after if _is_async(step) else after_now


def _is_async(step: Any) -> bool:
    import inspect

    return inspect.iscoroutinefunction(step)
