"""The TypedDicts of `rocketpy.config` say what options there are. Signatures, docstrings and the guide say the same.

`UPDATE_DOCS=1 pytest tests/sdk/test_options.py` writes the tables of docs/python.md.
"""

import ast
import inspect
import os
import re
import textwrap
from pathlib import Path

import pytest

import rocketpy
from rocketpy import config

ROOT = Path(__file__).parents[2]
CLASSES = {
    rocketpy.Consumer: (config.ConsumerOptions, config.CONSUMER_DEFAULTS),
    rocketpy.PushConsumer: (config.PushOptions, config.PUSH_DEFAULTS),
    rocketpy.AsyncPushConsumer: (config.PushOptions, config.PUSH_DEFAULTS),
    rocketpy.Producer: (config.ProducerOptions, config.PRODUCER_DEFAULTS),
    rocketpy.Admin: (config.ClientOptions, config.CLIENT_DEFAULTS),
    rocketpy.RangeReader: (config.ClientOptions, config.CLIENT_DEFAULTS),
}
BEFORE_A_DEFAULT = re.compile(r"\.? Default:? ")


def texts(options: type) -> dict[str, str]:
    """By option, the first paragraph below its field."""
    tree = ast.parse(Path(config.__file__).read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found: dict[str, str] = {}

    def read(name: str) -> None:
        node = classes[name]
        fields = [part for part in node.body if not (isinstance(part, ast.Expr) and part is node.body[0])]
        for field, text in zip(fields[::2], fields[1::2], strict=True):
            found[field.target.id] = " ".join(text.value.value.split("\n\n")[0].split())
        for base in node.bases:
            if base.id in classes:
                read(base.id)

    read(options.__name__)
    return found


def listed(options: type, defaults: dict) -> str:
    """The list of a docstring."""
    said = texts(options)
    return "\n".join(
        textwrap.fill(f"{name}: {said[name]}", 120, initial_indent=" " * 8, subsequent_indent=" " * 12,
                      break_long_words=False, break_on_hyphens=False)
        for name in defaults
    )  # fmt: skip


def written(value: object) -> str:
    """A default as the texts write it."""
    if type(value) is float:
        return f"{value:g} s"
    if type(value) is int and value >= 1 << 17:
        return f"{value >> 20} MiB" if value % (1 << 20) == 0 else f"{value >> 10} KiB"
    if isinstance(value, rocketpy.Start | rocketpy.Balance):
        return f"{type(value).__name__}.{value.kind.upper()}"
    if isinstance(value, config.Backoff):
        return "Backoff()"
    return str(value)


@pytest.mark.parametrize("client", CLASSES, ids=lambda client: client.__name__)
def test_the_signature_shows_every_option_with_its_default(client: type):
    options, defaults = CLASSES[client]
    parameters = inspect.signature(client).parameters
    assert set(defaults) == set(options.__annotations__)
    assert {name: parameters[name].default for name in defaults} == defaults
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in defaults)
    assert "options" not in parameters


@pytest.mark.parametrize("client", CLASSES, ids=lambda client: client.__name__)
def test_help_explains_every_option(client: type):
    options, defaults = CLASSES[client]
    block = re.search(r"^Options:\n(.*?)\n\n", client.__doc__, re.MULTILINE | re.DOTALL)
    assert textwrap.indent(block[1], " " * 4) == listed(options, defaults)


@pytest.mark.parametrize(
    "options", [rocketpy.Consumer, rocketpy.PushConsumer, rocketpy.Producer], ids=lambda client: client.__name__
)
def test_the_default_that_a_text_names_is_the_one_of_the_signature(options: type):
    options, defaults = CLASSES[options]
    for name, text in texts(options).items():
        assert "default" in text.lower(), f"{name} does not say its default"
        if BEFORE_A_DEFAULT.search(text):
            said = BEFORE_A_DEFAULT.split(text)[1].replace("`", "").replace('"', "")
            assert said.startswith(written(defaults[name])), f"{name}: {said}"


def defaults_of_the_client() -> dict[str, str]:
    """The text of each default in the crate of the clients."""
    sources = ("config.rs", "config/push.rs")
    source = "".join((ROOT / "rust/client/src" / name).read_text() for name in sources)
    blocks = re.findall(r"^        Self \{\n(.*?)^        \}", source, re.MULTILINE | re.DOTALL)
    return {name: text for block in blocks for name, text in re.findall(r"^ {12}(\w+): (.*),$", block, re.MULTILINE)}


def test_the_defaults_are_those_of_the_client():
    known = defaults_of_the_client()
    for defaults in (config.PRODUCER_DEFAULTS, config.CONSUMER_DEFAULTS, config.PUSH_DEFAULTS):
        for name in defaults.keys() & known.keys():
            assert same(known[name], defaults[name]), f"{name}: {known[name]}"
    assert len(known.keys() & config.CONSUMER_DEFAULTS.keys()) > 10


def same(rust: str, python: object) -> bool:
    rust = rust.removeprefix("Some(").removesuffix(")") if rust.startswith("Some(") else rust
    if isinstance(python, rocketpy.Start | rocketpy.Balance):
        return rust == f"{type(python).__name__}::{python.kind.capitalize()}"
    if python == "zlib":
        return rust == "CompressionType::Zlib"
    if python == "round_robin":
        return rust == "Selector::RoundRobin"
    if isinstance(python, config.Backoff):
        return rust == "Backoff::default()"
    if python is None or isinstance(python, bool):
        return rust in (str(python), str(python).lower()) or (python is False and rust == "None")
    if rust == "Duration::ZERO":
        return python == 0
    seconds = re.fullmatch(r"Duration::from_secs\((\d+)\)", rust)
    if seconds:
        return float(seconds[1]) == python
    return re.fullmatch(r"[\d_]+(?: << \d+)?", rust) is not None and eval(rust) == python


def test_every_default_may_be_given(rocketpy_server: rocketpy.Server, rocketpy_topic: str):
    rocketpy_server.producer("defaults", **config.PRODUCER_DEFAULTS).close()
    rocketpy_server.consumer("defaults", rocketpy_topic, **config.CONSUMER_DEFAULTS).close()
    pusher = rocketpy_server.push_consumer("defaults", **config.PUSH_DEFAULTS)
    pusher.on(rocketpy_topic)(print)
    with pusher:
        pass
    rocketpy_server.admin(**config.CLIENT_DEFAULTS).close()


def table(options: type, defaults: dict, inherited: dict) -> str:
    """The table of the guide."""
    said, kinds = texts(options), options.__annotations__
    rows = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for name in defaults:
        if name not in inherited:
            kind = kinds[name].__origin__.__forward_arg__.replace("|", "\\|")
            meaning = said[name].removesuffix(f" Default {written(defaults[name])}.").replace("||", "\\|\\|")
            rows.append(f"| `{name}` | `{kind}` | {written(defaults[name]).replace('*', '`*`')} | {meaning} |")
    return "\n".join(rows)


LISTED = [rocketpy.Producer, rocketpy.Consumer, rocketpy.PushConsumer, rocketpy.Admin]


@pytest.mark.parametrize("client", LISTED, ids=lambda it: it.__name__)
def test_the_guide_lists_every_option(client: type):
    options, defaults = CLASSES[client]
    inherited = {} if client is rocketpy.Admin else config.CLIENT_DEFAULTS
    page = ROOT / "docs/python.md"
    text = page.read_text()
    mark = f"<!-- options: {options.__name__} -->\n"
    start = text.index(mark) + len(mark)
    end = text.index("<!-- end -->", start)
    wanted = table(options, defaults, inherited) + "\n"
    if "UPDATE_DOCS" in os.environ:
        page.write_text(text[:start] + wanted + text[end:])
        return
    assert text[start:end] == wanted
