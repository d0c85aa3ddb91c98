"""Templates, scripts and vendored files: no inline code, every htmx element with its nonce, checksums."""

import hashlib
import json
import re
from importlib.metadata import distribution
from pathlib import Path

import pytest

import rocketpy.console

FOLDER = Path(rocketpy.console.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
VENDOR = FOLDER / "static/vendor"
FORBIDDEN = {
    "style attribute": r"\sstyle\s*=",
    "style element": r"<style",
    "event attribute": r"\son[a-z]+=[\"'{]",
    "hx-on": r"hx-on",
    "evaluated value": r"js:|javascript:",
    "filter of a trigger": r"hx-trigger=\"[^\"]*\[",
    "inline script": r"<script(?![^>]*\bsrc=)",
    "unescaped value": r"\|\s*safe\b|autoescape\s+false|Markup",
    "deferred script": r"<script[^>]*\b(defer|async)\b",
    "other host": r"(src|href|action)=\"(https?:)?//",
}
TAG = re.compile(r"<[a-z][^<>]*?\shx-[^<>]*>", re.DOTALL)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
@pytest.mark.parametrize("what", FORBIDDEN)
def test_templates_have_no_inline_code(path: Path, what: str):
    found = re.findall(FORBIDDEN[what], path.read_text(encoding="utf-8"), re.IGNORECASE)
    assert found == []


def test_forbidden_forms_are_recognised():
    wrong = (
        '<p style="x">', "<style>", '<a onclick="x">', "<a hx-on:click=x>", "<a hx-vals='js:{}'>", "{{ x | safe }}",
        '<a hx-trigger="every 5s [visible]">', "<script>x</script>", '<script src="x" defer>', '<img src="//evil/x">',
    )  # fmt: skip
    for text in wrong:
        assert any(re.search(pattern, text, re.IGNORECASE) for pattern in FORBIDDEN.values()), text


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_htmx_element_has_the_nonce(path: Path):
    text = re.sub(r"{#.*?#}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for tag in TAG.findall(text):
        if tag.startswith("<hx-partial "):
            continue  # names a place of the page; not an element that htmx serves
        assert "hx-nonce=" in tag, tag
    for line in text.splitlines():
        assert "hx-get" not in line or "hx-nonce=" in line, line


def test_vendored_files_are_those_of_the_packages():
    sources = json.loads((VENDOR / "SOURCES.json").read_text())
    for source in sources:
        assert hashlib.sha256((VENDOR / source["file"]).read_bytes()).hexdigest() == source["sha256"], source["file"]
        assert source["version"] in source["file"]
        assert source["licence"] in {"0BSD", "MIT"}
    names = {path.name for path in VENDOR.iterdir()}
    assert names == {source["file"] for source in sources} | {"SOURCES.json", "LICENSES"}
    licences = (VENDOR / "LICENSES").read_text()
    for source in sources:
        assert f"{source['package']}@{source['version']} ({source['licence']})" in licences


def test_the_wheel_has_every_template_and_static_file():
    shipped = {str(file) for file in distribution("rocketpy-mq").files or []}
    package = FOLDER.parents[1]
    for path in (*TEMPLATES, *(one for one in (FOLDER / "static").rglob("*") if one.is_file())):
        assert str(path.relative_to(package)) in shipped


def test_the_style_sheet_is_short_and_asks_no_other_host():
    text = (FOLDER / "static/console.css").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 600
    assert "url(" not in text
    assert "@import" not in text


def test_own_script_evaluates_and_parses_nothing():
    text = (FOLDER / "static/console.js").read_text(encoding="utf-8")
    for word in ("eval(", "new Function", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "http:"):
        assert word not in text, word
