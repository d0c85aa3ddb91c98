"""Every identifier, key, command and path that docs/glossary.md names exists, and each term has one short sentence."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (?P<term>[^|]+) \| (?P<meaning>[^|]+) \| (?P<seen>[^|]+) \|$", re.MULTILINE)
ROWS = [(row["term"], row["meaning"], row["seen"]) for row in ROW.finditer((ROOT / "docs/glossary.md").read_text())][1:]


@cache
def sources() -> str:
    return "\n".join(
        path.read_text()
        for folder, suffix in (("rust", "rs"), ("python", "py"))
        for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))
        if "target" not in path.parts
    )


def exists(name: str) -> bool:
    if name.startswith("rocketpy "):
        *groups, command = name.split()[1:]
        app = (ROOT / "python/rocketpy/cli/app.py").read_text()
        return f'("{command}", ' in app and all(f'("{group}", ' in app for group in groups)
    if "/" in name:
        return (ROOT / name).exists()
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sources()) is not None or f'"{name}' in sources()


def test_the_glossary_has_at_least_forty_terms_in_order() -> None:
    terms = [term for term, _, _ in ROWS]
    assert len(terms) >= 40
    assert terms == sorted(terms)
    assert len(set(terms)) == len(terms)


@pytest.mark.parametrize(("term", "meaning", "seen"), ROWS, ids=[term for term, _, _ in ROWS])
def test_a_term_is_defined_in_a_sentence_and_its_places_exist(term: str, meaning: str, seen: str) -> None:
    assert meaning.endswith("."), meaning
    assert len(meaning.split()) <= 25, meaning
    names = re.findall(r"`([^`]+)`", seen)
    assert names, f"{term} names no place"
    for name in names:
        assert exists(name), f"{term}: {name} does not exist"


def test_a_place_that_does_not_exist_is_noticed() -> None:
    assert not exists("noSuchKeyOfTheBroker")
    assert not exists("rust/store/src/no_such_folder")
    assert not exists("rocketpy store vanish")


def test_the_site_lists_the_glossary() -> None:
    assert (ROOT / "mkdocs.yml").read_text().count("glossary.md") == 1
