"""The pages: their links lead somewhere, their code is code, their commands exist. `make docs` runs these."""

import ast
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.endpoint import run_entrepot
from tests.pages import PAGES, ROOT, Fence, anchors, fences, links, steps

GROUPS = {"user", "keys", "config", "backend"}
"""Words that have commands below them."""


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_shell(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def check(fence: Fence) -> None:
    """Raise where a block is not what its language says."""
    match fence.language:
        case "console":
            for step in steps(fence):
                is_shell(step.command)
        case "sh" | "bash":
            is_shell(fence.text)
        case "python":
            ast.parse(fence.text)
        case "toml":
            tomllib.loads(fence.text)
        case "json":
            json.loads(fence.text)
        case "" | "text" | "xml" | "sql" | "yaml" | "ini" | "dockerfile" | "http":
            pass
        case other:
            raise AssertionError(f"a language that nothing checks: {other}")


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page):
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page_id(page)} → {target}"
        assert not anchor or anchor in anchors(file), f"{page_id(page)} → {target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_code_block_is_what_it_says(page):
    for fence in fences(page):
        try:
            check(fence)
        except (AssertionError, SyntaxError, ValueError) as error:
            raise AssertionError(f"{page_id(page)}:{fence.line}: {error}") from error


def test_every_page_can_be_reached_from_the_readme():
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        paths = [target.partition("#")[0] for target in links(page) if ":" not in target]
        ahead += [(page.parent / path).resolve() for path in paths if path]
    assert set(PAGES) - reached == set()


def commands_named(page: Path) -> set[tuple[str, ...]]:
    """The commands that a page names as `entrepot VERB`, in backticks or in a console block."""
    text = page.read_text()
    found = re.findall(r"`entrepot ([a-z][a-z ]*)", text) + re.findall(
        r"^\$ entrepot ([a-z][a-z ]*)", text, re.MULTILINE
    )
    return {tuple(words.split()) for words in found}


def test_every_command_that_a_page_names_exists():
    named = {words[:2] if words[0] in GROUPS else words[:1] for page in PAGES for words in commands_named(page)}
    for words in sorted(named):
        done = run_entrepot(*words, "--help", check=False)
        assert not done.returncode, f"entrepot {' '.join(words)}: {done.stderr}"


def test_every_test_that_the_threat_model_names_exists():
    text = (ROOT / "docs" / "threats.md").read_text()
    named = re.findall(r"`([a-z0-9_/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    for file, test in named:
        path = ROOT / "tests" / file
        assert path.exists(), f"docs/threats.md names tests/{file}"
        defined = re.search(rf"^\s*(async )?def {test}\(", path.read_text(), re.MULTILINE)
        assert not test or defined, f"docs/threats.md names tests/{file}::{test}"


def test_every_threat_has_a_defence_and_a_test():
    lines = (ROOT / "docs" / "threats.md").read_text().splitlines()
    begins = [number for number, line in enumerate(lines) if line == "| threat | defence | test |"]
    assert len(begins) >= 4
    for begin in begins:
        for line in lines[begin + 2 :]:
            if not line.startswith("|"):
                break
            _, threat, defence, test, _ = (each.strip() for each in re.split(r"(?<!\\)\|", line))
            assert threat and defence, line
            assert re.search(r"`[a-z0-9_/]+\.py(::\w+)?`", test), f"docs/threats.md names no test for: {threat}"


ARCHITECTURE = ROOT / "docs" / "architecture.md"
CODE = [path for top in ("gateway", "backends", "s3api", "tests") for path in (ROOT / top).rglob("*.py")]


def test_every_file_that_the_architecture_page_names_exists() -> None:
    files = {f"/{path.relative_to(ROOT).as_posix()}" for path in CODE}
    named = set(re.findall(r"`([\w/]+\.py)`", ARCHITECTURE.read_text()))
    missing = [each for each in named if not any(file.endswith(f"/{each}") for file in files)]
    assert named and not missing


def test_every_class_that_the_architecture_page_names_exists() -> None:
    classes = {name for path in CODE for name in re.findall(r"^(?:class )?([A-Z]\w+)", path.read_text(), re.MULTILINE)}
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)(?:\.\w+)?`", ARCHITECTURE.read_text()))
    assert named and named - classes == set()


def test_the_glossary_has_at_most_twenty_terms_of_our_own() -> None:
    glossary = ARCHITECTURE.read_text().partition("## Glossary")[2].partition("\n## ")[0]
    terms = re.findall(r"^\| (\w+) \|", glossary, re.MULTILINE)
    assert "block" in terms and len(terms) - 1 <= 20  # the first row is the heading
