"""The import-linter contract names every room, and promises nothing about rooms that are not there."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = next(contract["layers"] for contract in CONTRACTS if contract["name"] == "Imports point down")


def rooms() -> set[str]:
    """The rooms of the core that have code, as module names, and the two packages beside it."""
    found = {"backends", "s3api"}
    for path in (ROOT / "gateway").iterdir():
        if path.suffix == ".py" and path.stem != "__init__":
            found.add(f"gateway.{path.stem}")
        elif path.is_dir() and any(path.glob("**/*.py")):
            found.add(f"gateway.{path.name}")
    return found


def named_layers() -> dict[str, bool]:
    """Each room that the contract names, and whether it may be absent (in parentheses)."""
    names = [name.strip() for layer in LAYERS for name in re.split("[|:]", layer)]
    return {name.strip("()"): name.startswith("(") for name in names}


def test_every_room_stands_in_the_contract():
    assert rooms() - set(named_layers()) == set()


def test_only_rooms_that_are_not_built_yet_are_optional():
    optional = {name for name, may_be_absent in named_layers().items() if may_be_absent}
    assert optional & rooms() == set()


def imports_of(path: Path) -> set[str]:
    """The dotted names that a file imports, relative ones as they stand in its package."""
    found: set[str] = set()
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


DRIVERS = {"memory", "local", "s3", "azure", "gcs", "fsspec"}


def driver_of(module: str) -> str | None:
    """The driver that a module of `backends` is a part of (`local_files` is of `local`), if of any."""
    head = module.removeprefix("backends.").split(".")[0].split("_")[0]
    return head if module.startswith("backends.") and head in DRIVERS else None


@pytest.mark.parametrize("path", sorted((ROOT / "backends").rglob("*.py")), ids=lambda path: path.name)
def test_a_driver_knows_no_other_driver(path):
    own = driver_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    if own is not None:
        assert {driver_of(module) for module in imports_of(path)} <= {own, None}


@pytest.mark.parametrize("path", sorted((ROOT / "backends").rglob("*.py")), ids=lambda path: path.name)
def test_backends_import_nothing_of_ours(path):
    assert {module for module in imports_of(path) if module.split(".")[0] in {"gateway", "s3api"}} == set()


def test_every_folder_of_code_is_a_package():
    folders = {path.parent for room in ("gateway", "backends", "s3api") for path in (ROOT / room).rglob("*.py")}
    assert {folder for folder in folders if not (folder / "__init__.py").exists()} == set()


@pytest.mark.parametrize(
    "module", ["gateway.site.processes.committer", "gateway.site.processes.keeper", "gateway.cli.worker"]
)
def test_who_succeeds_a_dead_process_imports_nothing_that_takes_long(module):
    """A committer's successor serves within two seconds, also where pandas is installed (sqlite-utils imports it)."""
    heavy = ("fsspec", "numpy", "pandas", "rich", "sqlite_utils", "typer")
    asked = f"import sys, {module}; print(*[each for each in {heavy} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not done.stdout.strip()
