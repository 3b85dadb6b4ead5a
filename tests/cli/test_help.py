"""`--help` at each level: every command has a line, and no line is cut."""

from __future__ import annotations

import pytest

from gateway.cli.main import run
from tests.endpoint import run_entrepot

GROUPS = [[], ["config"], ["backend"], ["user"], ["user", "key"], ["keys"]]


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_no_line_of_the_list_of_commands_is_cut(
    group: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*group, "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert listed
    for line in listed:
        assert not line.endswith("..."), line
        assert line.startswith("  ")
        assert len(line.split(maxsplit=1)) == 2, line


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    said = capsys.readouterr().out
    assert run(["version"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == said.strip()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_its_commands(shell: str) -> None:
    assert (
        "_ENTREPOT_COMPLETE" in run_entrepot(environment={"_ENTREPOT_COMPLETE": f"source_{shell}"}, check=False).stdout
    )
    asked = {"_ENTREPOT_COMPLETE": "complete_bash", "COMP_WORDS": "entrepot ba", "COMP_CWORD": "1"}
    assert "backup" in run_entrepot(environment=asked, check=False).stdout
