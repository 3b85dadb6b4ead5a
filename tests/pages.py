"""Reading Markdown as the tests of documents do: fences, links, headings, and what a console block says."""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("conf/**/*.md")])


@dataclass(frozen=True)
class Fence:
    """A code block: its language, its text, and the comment that stands right above it (`<!-- run: … -->`)."""

    language: str
    text: str
    line: int
    directive: str


@dataclass
class Step:
    """One command of a console block, and the lines that the page says it prints; `…` stands for anything."""

    command: str
    prints: list[str] = field(default_factory=list)


def fences(page: Path) -> list[Fence]:
    """Every code block of a page; an open one is an error."""
    found, above, inside = [], "", None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if mark := re.match(r"\s*```(\S*)\s*$", line):
            if inside is None:
                inside = (mark[1], number, [])
            else:
                found.append(Fence(inside[0], "\n".join(inside[2]) + "\n", inside[1], directive_in(above)))
                inside, above = None, ""
        elif inside is not None:
            inside[2].append(line)
        elif line.strip():
            above = line
    assert inside is None, f"{page}:{inside and inside[1]}: a code block that does not end"
    return found


def directive_in(line: str) -> str:
    """What `<!-- run: … -->` says, or nothing."""
    mark = re.match(r"\s*<!-- run: (.*?) -->\s*$", line)
    return mark[1] if mark else ""


def steps(fence: Fence) -> list[Step]:
    """The commands of a console block: a line that begins with `$ `, and `> ` where it goes on."""
    found: list[Step] = []
    for line in fence.text.splitlines():
        if line.startswith("$ "):
            found.append(Step(line[2:]))
        elif (line.startswith("> ") or line == ">") and found and not found[-1].prints:
            found[-1].command += "\n" + line[2:]
        elif found:
            found[-1].prints.append(line)
        else:
            raise AssertionError(f"line {fence.line}: a console block begins with a command, `$ …`")
    return found


def without_fences(page: Path) -> str:
    """A page's prose."""
    return re.sub(r"^\s*```.*?^\s*```\s*$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    made: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", without_fences(page), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()).replace(" ", "-")
        made.add(words if words not in made else f"{words}-1")
    return made


def links(page: Path) -> list[str]:
    """The targets of a page's links and pictures."""
    prose = re.sub(r"`[^`]*`", "", without_fences(page))
    return re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r"^\[[^\]]+\]: (\S+)", prose, re.MULTILINE)
