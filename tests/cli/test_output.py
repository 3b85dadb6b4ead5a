"""What names and messages hold does not reach the terminal as a command, and forges no line."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gateway.cli import output
from gateway.cli.main import app, run
from gateway.cli.output import escape_unprintable, format_table, print_error, print_result, print_text, to_json
from gateway.errors import InvalidArgument, NoSuchUser
from gateway.metrics.json_log import INFO, JsonLog
from gateway.timing import Timing
from tests.endpoint import ENTREPOT, Endpoint, command_environment, run_entrepot, started
from tests.new_sites import ACCESS_KEY, SECRET_KEY, committer_in_thread

EVIL = "a\x1b]0;owned\x07\x1b[31m\r\n\x0b\x85\x9b2J\x7f\u2028\u2029\u202egpj.exe\u2066\u200e\ufeff[red]b[/red]"
FORGED = "\nforged\nentrepot: all is well"
NAME = EVIL + FORGED


def unharmed(printed: str, *, lines: int | None = None) -> None:
    """Nothing but what shows, and line breaks; and so many lines."""
    odd = {each for each in printed if each != "\n" and not each.isprintable()}
    assert odd == set()
    assert not [line for line in printed.split("\n") if line in ("forged", "entrepot: all is well")]
    assert lines is None or len(printed.splitlines()) == lines, printed


def test_whatever_is_not_printable_is_escaped_and_the_rest_is_as_it_was() -> None:
    for number in range(0x110000):
        each = chr(number)
        if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert escape_unprintable(each).isascii()
            assert escape_unprintable(each).startswith("\\")
    for text in ("", "plain", "grüße/日本語 [red]x[/red]", "back\\slash", "👩🏽"):
        assert escape_unprintable(text) == text
    assert escape_unprintable("\x1b\n\t\u202e\udc80\x7f") == r"\x1b\n\t\u202e\udc80\x7f"


def test_lines_tables_and_errors_are_unharmed(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(None, as_json=False, text=lambda: [NAME, f"of {NAME}"])
    unharmed(capsys.readouterr().out, lines=2)
    print_result(None, as_json=False, text=lambda: format_table(("NAME", "MORE"), [(NAME, "x"), ("short", NAME)]))
    unharmed(capsys.readouterr().out, lines=3)
    for error in (InvalidArgument(NAME), NoSuchUser(NAME), OSError(2, "No such file", NAME), OSError(2, "x", b"\x1b")):
        print_error(error, as_json=False)
        unharmed(capsys.readouterr().err)
    print_error(NoSuchUser(NAME), as_json=False)
    unharmed(capsys.readouterr().err, lines=1)
    print_text(f"# {EVIL}\nkey\t= 1\n")
    printed = capsys.readouterr().out
    assert "key\t= 1\n" in printed
    unharmed(printed.replace("\t", ""))


def test_json_is_ascii_without_control_characters_and_tells_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found = {NAME: [NAME, "\udc80"]}
    print_result(found, as_json=True, text=list)
    printed = capsys.readouterr().out
    assert printed.isascii()
    unharmed(printed)
    assert json.loads(printed) == json.loads(to_json(found)) == found
    print_error(InvalidArgument(NAME), as_json=True)
    printed = capsys.readouterr().err
    unharmed(printed, lines=1)
    assert json.loads(printed)["message"] == NAME


def test_what_a_command_logs_is_unharmed(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = list(root.handlers)
    output.print_logged_warnings()
    try:
        logging.getLogger("backends").warning("backend %s is away", NAME)
        unharmed(capsys.readouterr().err)
    finally:
        root.handlers[:] = before


def test_a_line_of_the_log_is_ascii_without_control_characters() -> None:
    reads, writes = os.pipe()
    lines = JsonLog("test", descriptor=writes, timing=Timing())
    lines.write(INFO, NAME, key=NAME)
    lines.close()
    os.close(writes)
    with open(reads, "rb") as file:
        raw = file.read().decode("ascii")
    unharmed(raw, lines=1)
    assert json.loads(raw)["key"] == NAME


def test_progress_takes_no_markup_and_no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "dumb")
    with output.progress(NAME, quiet=False) as told:
        told(1, 2, NAME)
    assert "\x1b]0;" not in shown.getvalue()
    assert "\u202e" not in shown.getvalue()


# ---- every command --------------------------------------------------------------------------------------------------

KEY = "dir/" + NAME.replace("\x0b", "").replace("\x07", "")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A site that is served, since every command would start a committer otherwise, and holds such a key."""
    from tests.site.running import client

    folder = tmp_path_factory.mktemp("evil") / "site"
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key=KEY, Body=b"x" * 100_000)
        yield endpoint


COMMANDS = [
    ["explain", f"s3://bucket/{KEY}", "--site", "SITE"],
    ["explain", f"s3://{NAME}/{KEY}", "--site", "SITE"],
    ["explain", f"s3://bucket/{KEY}", "--from", NAME, "--site", "SITE"],
    ["explain", f"s3://bucket/{KEY}", "--user", NAME, "--size", NAME, "--site", "SITE"],
    ["explain", f"s3://bucket/{KEY}", "--version", NAME, "--site", "SITE"],
    ["backend", "lost", "disk", "--site", "SITE"],
    ["backend", "lost", NAME, "--site", "SITE"],
    ["backend", "lost", "--site", "SITE"],
    ["backend", "list", "--site", "SITE"],
    ["backend", "retry", "--site", "SITE"],
    ["backend", "claim", NAME, "--site", "SITE"],
    ["backend", "test", NAME, "--site", "SITE"],
    ["user", "add", NAME, "--site", "SITE"],
    ["user", "remove", NAME, "--site", "SITE"],
    ["user", "list", "--site", "SITE"],
    ["user", "key", "add", NAME, "--site", "SITE"],
    ["user", "key", "list", NAME, "--site", "SITE"],
    ["user", "key", "remove", NAME, "--site", "SITE"],
    ["keys", "list", "--site", "SITE"],
    ["status", "SITE"],
    ["status", NAME],
    ["fsck", "SITE"],
    ["fsck", NAME],
    ["gc", "SITE", "--dry-run"],
    ["backup", "SITE", "/nonexistent/" + NAME],
    [
        "restore",
        "--take-over",
        "--yes",
        "/nonexistent/" + NAME,
        "/nonexistent/" + NAME,
        "--master-key",
        "/nonexistent/" + NAME,
    ],
    ["config", "check", "--site", "SITE"],
    ["config", "check", "/nonexistent/" + NAME],
    ["config", "show", "--site", "SITE"],
    ["plan", "--site", NAME],
    ["config", "schema"],
    ["config", "default"],
    ["init", "/nonexistent/" + NAME],
    ["serve", "/nonexistent/" + NAME],
    ["serve", "SITE", "--listen", NAME],
    ["takeover", "/nonexistent/" + NAME],
    ["keys", "rotate", "--site", "/nonexistent/" + NAME],
    ["keys", "renew", "--site", "/nonexistent/" + NAME],
    ["version"],
    ["user", "disable", NAME, "--site", "SITE"],
    ["user", "enable", NAME, "--site", "SITE"],
    ["user", "transfer", NAME, NAME, "--site", "SITE"],
    ["user", "key", "add", NAME, "--expires", NAME, "--site", "SITE"],
    ["usage", "SITE"],
    ["usage", "SITE", "--users", "--bytes"],
    ["usage", "SITE", "--bucket", NAME],
    ["usage", "SITE", "--user", NAME],
    ["reload", "/nonexistent/" + NAME],
    [NAME],
    ["status", "SITE", f"--{NAME}"],
]


def command_lines(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Each command below *command*, as the command line's own parser has it, and its options."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, {option for each in command.params for option in each.opts}
    else:
        for name, each in below.items():
            yield from command_lines(each, (*path, name))


PARSED = dict(command_lines(typer.main.get_command(app)))


def test_every_command_of_the_parser_is_run_below() -> None:
    """Refused, and with success: a new command has to be added to both lists."""
    for lists in (COMMANDS, SUCCESSFUL):
        run_below = {path for path in PARSED for each in lists if tuple(each[: len(path)]) == path}
        assert set(PARSED) - run_below == set()


@pytest.mark.parametrize("command", COMMANDS, ids=[escape_unprintable(" ".join(each[:2]))[:20] for each in COMMANDS])
def test_every_command_prints_names_without_what_they_would_do_to_a_terminal(
    served: Endpoint, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for as_json in (False, True):
        told = ["--json"] * (as_json and takes_json(command))
        arguments = [str(served.dir) if each == "SITE" else each for each in command] + told
        run(arguments)
        printed = capsys.readouterr()
        unharmed(printed.out)
        unharmed(printed.err)
        if told:
            for text in filter(None, (printed.out, printed.err)):
                json.loads(text)


def takes_json(command: list[str]) -> bool:
    """Whether *command* is one that has `--json`, or none at all."""
    return all("--json" in options for path, options in PARSED.items() if tuple(command[: len(path)]) == path)


SUCCESSFUL = [
    ["init", "SITE"],
    ["usage", "SITE"],
    ["usage", "SITE", "--users"],
    ["version"],
    ["status", "SITE"],
    ["fsck", "SITE", "--read", "--replay", "--mend"],
    ["gc", "SITE"],
    ["gc", "SITE", "--dry-run"],
    ["explain", "s3://bucket/k", "--site", "SITE"],
    ["config", "check", "--site", "SITE"],
    ["config", "check", "--open", "--site", "SITE"],
    ["plan", "--site", "SITE"],
    ["config", "show", "--site", "SITE", "--effective"],
    ["config", "schema"],
    ["config", "default"],
    ["backend", "list", "--site", "SITE"],
    ["backend", "retry", "--site", "SITE"],
    ["backend", "claim", "disk", "--site", "SITE"],
    ["backend", "test", "disk", "--site", "SITE", "--seconds", "0.1"],
    ["user", "add", "somebody", "--site", "SITE", "--access-key", "ANEVILTESTKEY", "--secret-key-file", "SECRET"],
    ["user", "list", "--site", "SITE"],
    ["user", "disable", "somebody", "--site", "SITE"],
    ["user", "enable", "somebody", "--site", "SITE"],
    ["user", "transfer", "bucket", "root", "--site", "SITE"],
    ["user", "key", "add", "somebody", "--site", "SITE"],
    ["user", "key", "list", "somebody", "--site", "SITE"],
    ["user", "key", "remove", "ANEVILTESTKEY", "--site", "SITE"],
    ["user", "remove", "somebody", "--site", "SITE"],
    ["keys", "rotate", "--site", "SITE"],
    ["keys", "renew", "--site", "SITE"],
    ["keys", "list", "--site", "SITE"],
    ["takeover", "SITE"],
    ["takeover", "SITE", "--yes"],
    ["reload", "SITE"],
    ["backend", "lost", "--site", "SITE"],
    ["serve", "SITE"],
    ["init", "PLAIN"],
    ["backup", "PLAIN", "BACKUP"],
    ["restore", "--take-over", "BACKUP", "RESTORED", "--master-key", "MASTER"],
    ["restore", "--take-over", "--yes", "BACKUP", "RESTORED", "--master-key", "MASTER"],
]
"""In this order. SITE, BACKUP and RESTORED are folders with such a name; `reload` and `serve` run where SITE is served.
A backup names its backends by absolute paths, in which a config takes no control characters, so PLAIN is backed up."""


def in_folder(folder: Path, command: list[str]) -> list[str]:
    """*command* with its paths in *folder*, each with a name that does harm."""
    paths = {each: str(folder / f"{each}{NAME}") for each in ("SITE", "BACKUP", "RESTORED")}
    paths |= {"PLAIN": str(folder / "plain"), "SECRET": f"{paths['SITE']}/root.secret"}
    paths["MASTER"] = f"{paths['PLAIN']}/master.key"
    return [paths.get(each, each) for each in command]


@pytest.mark.slow
def test_commands_on_a_site_whose_folder_has_such_a_name_succeed_and_print_nothing_harmful(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.site.running import client

    monkeypatch.setenv("ENTREPOT_ROOT_ACCESS_KEY", ACCESS_KEY)
    monkeypatch.setenv("ENTREPOT_ROOT_SECRET_KEY", SECRET_KEY)
    [site] = in_folder(tmp_path, ["SITE"])

    def succeed(command: list[str]) -> None:
        status = run(in_folder(tmp_path, command))
        printed = capsys.readouterr()
        assert status == 0, (command, printed.err)
        unharmed(printed.out.replace("\t", ""))
        unharmed(printed.err)

    served = [each for each in SUCCESSFUL if each[0] in ("serve", "reload", "explain") or "transfer" in each]
    first, *others = [each for each in SUCCESSFUL if each not in served]
    succeed(first)
    with committer_in_thread(Path(site)):
        for command in others:
            if "SITE" in command or command[0] in ("version", "config"):
                succeed(command)
    with started(Path(site), ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="k", Body=b"x")
        for command in served:
            if command[0] != "serve":
                succeed(command)
        unharmed(Path(site).with_name(Path(site).name + ".out").read_text())
        unharmed(endpoint.log.read_text())
    for command in SUCCESSFUL[-4:]:
        succeed(command)


def test_a_config_with_such_values_is_told_without_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spelt = json.dumps(EVIL)
    for text in (
        f"[site]\nname = {spelt}\n",
        f"[backends.{spelt}]\ndriver = 'local'\npath = 'x'\n",
        f"{spelt} = 1\n",
        f"[policies.default]\nkeep = [{spelt}]\n",
        f"# {EVIL}\nname = \n",
    ):
        file = tmp_path / "entrepot.toml"
        file.write_text(text)
        assert run(["config", "check", str(file)]) != 0
        printed = capsys.readouterr()
        unharmed(printed.err)
        unharmed(printed.out)


def test_the_installed_command_prints_an_argument_that_is_no_text_at_all(tmp_path: Path) -> None:
    done = subprocess.run(
        [*map(os.fsencode, ENTREPOT), b"status", os.fsencode(tmp_path) + b"/\x1b[31m\xff\xfe"],
        env=command_environment(),
        capture_output=True,
    )
    assert done.returncode == 1
    assert b"\x1b" not in done.stderr
    assert b"Traceback" not in done.stderr
    assert rb"\x1b[31m\udcff\udcfe" in done.stderr
    assert run_entrepot("version").stdout
