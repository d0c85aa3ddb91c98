"""References lead somewhere: sections that code cites, links between pages, tests that a page names."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTION = r"[RC]?\d+(?:\.\d+)*"
CITATION = re.compile(
    rf"docs/(?P<page>[\w./-]+?\.md)(?:\)? (?P<sections>{SECTION}(?:(?:, and |, | and | to ){SECTION})*)(?![\w-]))?"
)
COMMENT = re.compile(r"\n[ \t]*(?://[/!]?|#)?[ \t]*")
LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)\)(?P<behind>[^|\n]{0,30})")
PATH = re.compile(r"`((?:benches|docs|python|rust|spark|tests|tools)/[\w./-]{2,})`")
NAME_OF_A_TEST = re.compile(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+){4,})`")


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository, also those that are not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in sorted(set(listed.split("\0"))) if name and (ROOT / name).is_file()]


@cache
def sections(page: Path) -> frozenset[str]:
    """Numbered headings of a page, and the rules in its tables."""
    text = page.read_text()
    headings = re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", text, re.MULTILINE)
    return frozenset(headings + re.findall(r"^\| ([RC]\d+) \|", text, re.MULTILINE))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Headings as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings)


def wrong_sections(page: Path, cited: str) -> Iterator[str]:
    for section in re.findall(SECTION, cited):
        if section not in sections(page):
            yield f"{page.relative_to(ROOT)} has no {section}"


def wrong_citations(text: str) -> Iterator[str]:
    for found in CITATION.finditer(COMMENT.sub(" ", text)):
        page = ROOT / "docs" / found["page"]
        if not page.is_file():
            yield f"no page: docs/{found['page']}"
        elif found["sections"]:
            yield from wrong_sections(page, found["sections"])
        elif page.parent.name == "reference":
            yield f"a page of the reference without a section: docs/{found['page']}"


def wrong_links(page: Path) -> Iterator[str]:
    for found in LINK.finditer(page.read_text()):
        name, _, anchor = found["target"].partition("#")
        if name.startswith(("http://", "https://")):
            continue
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            yield f"no file: {found['target']}"
        elif anchor and anchor not in anchors(target):
            yield f"no heading: {found['target']}"
        elif (cited := re.match(rf" ({SECTION})(?![\w-])", found["behind"])) and target.suffix == ".md":
            yield from wrong_sections(target, cited[1])


def code() -> list[Path]:
    endings = (".rs", ".py", ".pyi", ".java", ".toml", ".yml", ".sh", ".hex")
    others = tracked("tools", "Makefile", ".ci")
    return [path for path in tracked() if path.suffix in endings and path != Path(__file__)] + others


def pages() -> list[Path]:
    return tracked("*.md")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_what_code_cites_is_a_section_of_a_page():
    wrong = {named(path): [*wrong_citations(path.read_text())] for path in code()}
    assert {path: texts for path, texts in wrong.items() if texts} == {}


def test_each_source_names_a_page_or_a_public_document():
    wrong = []
    for path in tracked("rust/**/*.rs", "benches/**/*.rs"):
        for found in re.finditer(r"# Source\n((?:[ \t]*//[/!] ?.+\n)+)", path.read_text()):
            if not re.search(r"docs/|https?://|\b(?:Linux|Spark|POSIX|RFC)\b", found[1]):
                wrong.append(f"{named(path)}: {found[1].strip()}")
    assert wrong == []


@pytest.mark.parametrize("page", pages(), ids=named)
def test_links_of_a_page_lead_somewhere(page: Path):
    assert [*wrong_links(page)] == []


@pytest.mark.parametrize("page", pages(), ids=named)
def test_files_that_a_page_names_exist(page: Path):
    assert [name for name in PATH.findall(page.read_text()) if not (ROOT / name).exists()] == []


def test_tests_that_the_page_on_durability_names_exist():
    files = chain(tracked("rust/**/*.rs"), tracked("tests/**/*.py"))
    known = {name for path in files for name in re.findall(r"\b(?:fn|def) (\w+)\(", path.read_text())}
    mentioned = NAME_OF_A_TEST.findall((ROOT / "docs/durability.md").read_text())
    assert len(mentioned) > 20
    assert [name for name in mentioned if name not in known] == []


def test_each_decision_is_listed():
    index = (ROOT / "docs/decisions/README.md").read_text()
    assert [path.name for path in tracked("docs/decisions/*.md") if f"({path.name})" not in index] == ["README.md"]


def test_each_source_file_says_what_it_is_for():
    sources = tracked("rust/*/src/*.rs", "rust/*/src/**/*.rs", "benches/**/*.rs")
    assert len(sources) > 200
    assert [named(path) for path in sources if not path.read_text().startswith(("//!", "#!"))] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("/// docs/reference/store-format.md 5.4 to 5.8; docs/durability.md R4.", []),
        ("/// docs/reference/store-format.md 5.99.", ["docs/reference/store-format.md has no 5.99"]),
        ("/// docs/durability.md R3 and R99", ["docs/durability.md has no R99"]),
        ("/// docs/reference/protocol.md\n/// 2.0 and so on", []),
        ("/// docs/reference/protocol.md", ["a page of the reference without a section: docs/reference/protocol.md"]),
        ("# docs/no-page.md", ["no page: docs/no-page.md"]),
    ],
)
def test_a_wrong_citation_is_found(text: str, wrong: list[str]):
    assert [*wrong_citations(text)] == wrong
