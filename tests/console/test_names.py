"""Names in URLs and as visible text."""

from urllib.parse import unquote

import pytest

from rocketpy.console.names import RESERVED, from_path, row_id, shown, to_path

HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}}", "{% raw %}", "${7*7}", "\x1b[31mred",
    "\u202eright-to-left", "a\u200bb", "x" * 255, "100%", "%2e%2e", "%RETRY%group", "a|b", "a/b", "..", ".",
    "../../etc", "a\\b", "~2f", "~", "~new", "#part", "?query=1", "a b", "&amp;", "'; DROP TABLE--",
    "javascript:alert(1)", "\r\nX: y", "\x00", "\ud800", "日本", "é" * 100, "`id`", "$(id)", "<!--", "]]>", "-",
    "--help", "=1+1", "@SUM(A1)",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_names_survive_the_path_of_a_url(name: str):
    path = to_path(name)
    assert path.isascii()
    assert not set(path) & set("/?#\\ <>\"'")
    assert from_path(unquote(path, errors="surrogatepass")) == name
    assert unquote(path, errors="surrogatepass") not in {".", ".."}


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_clusters_with_a_reserved_name_have_their_own_path(name: str):
    path = to_path(name, is_cluster=True)
    assert path not in RESERVED
    assert from_path(unquote(path)) == name


@pytest.mark.parametrize("name", HOSTILE)
def test_shown_names_have_no_invisible_characters_and_a_limit(name: str):
    text = shown(name)
    assert len(text) <= 256
    assert not any(ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0 or one in "\u200b\u202e" for one in text)


def test_row_ids_are_safe_and_differ():
    ids = [row_id(name) for name in HOSTILE]
    assert len(set(ids)) == len(HOSTILE)
    assert all(one.replace("-", "").isalnum() for one in ids)
    assert row_id("a", "b") != row_id("ab")
