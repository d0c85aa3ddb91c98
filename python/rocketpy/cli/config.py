"""`rocketpy config`: the values that a server would use, the meaning of a key, differences from the defaults."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketpy import _rocketpy
from rocketpy.cli.options import Json
from rocketpy.cli.serve import settings_of
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from rocketpy._rocketpy import ConfigKey

Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML, or Apache's properties as in broker.conf.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration key; may be repeated.")
]


class Format(StrEnum):
    """Output format of values."""

    TABLE = "table"
    JSON = "json"
    PROPERTIES = "properties"


def show(
    config: Config = None,
    settings: Settings = None,
    style: Annotated[
        Format, typer.Option("--format", help="`properties` prints a broker.conf with unset keys as comments.")
    ] = Format.TABLE,
) -> None:
    """Show the value of every key, and its layer: defaults, file, environment, command line."""
    keys = load(config, settings or [])
    if style is Format.PROPERTIES:
        for key in keys:
            mark = "#" if key["layer"] == "default" else ""
            print(f"{mark}{key['name']}={escaped(key['text'])}")
        return
    as_json = style is Format.JSON
    rows = [{"key": key["name"], **value_of(key, as_json), "origin": origin(key)} for key in keys]
    output.show(rows, as_json=as_json, empty="no keys")


def explain(key: Annotated[str, typer.Argument(metavar="KEY")], as_json: Json = False) -> None:
    """Explain one key: its values, default and effect, how Apache differs, and whether it can change at run time."""
    name = _rocketpy.config_key_name(key)
    output.show_one(facts_of(name), as_json=as_json)


def diff(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[A B]", help="Two files to compare.")] = None,
    config: Config = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show values that differ from the defaults, or between two files."""
    if files:
        if len(files) != 2 or config is not None or settings:
            raise CommandError(
                "diff compares two files, or one configuration with the defaults",
                ExitCode.USAGE,
                "write `rocketpy config diff A B`, or `rocketpy config diff --config FILE`",
            )
        left, right = (load(file, [], environment=False) for file in files)
        rows = [
            {"key": one["name"], str(files[0]): bare_value(one, as_json), str(files[1]): bare_value(other, as_json)}
            for one, other in zip(left, right, strict=True)
            if one["value"] != other["value"]
        ]
        output.show(rows, as_json=as_json, empty=f"nothing differs between {files[0]} and {files[1]}")
        return
    rows = [
        {"key": key["name"], **value_of(key, as_json), "origin": origin(key)}
        for key in load(config, settings or [])
        if key["value"] != key["default"]
    ]
    output.show(
        rows, as_json=as_json, empty="nothing differs from the defaults" + ("" if config is None else f" in {config}")
    )


def load(config: Path | None, settings: Sequence[str], *, environment: bool = True) -> "list[ConfigKey]":
    """Returns every key with its value; reports ignored keys on standard error."""
    if config is not None and not config.exists():
        raise CommandError(
            f"no such configuration file: {config}",
            ExitCode.NOT_FOUND,
            "check the path: a file of KEY=VALUE lines, or a TOML file",
        )
    given = list(settings_of(settings).items())
    keys, ignored = _rocketpy.config_keys(None if config is None else str(config), given, environment)
    if ignored:
        print(f"ignored keys: {' '.join(ignored)}", file=sys.stderr)
    return keys


def value_of(key: "ConfigKey", as_json: bool) -> dict[str, Any]:
    """Returns value and default: typed for JSON, otherwise as in a configuration file."""
    if as_json:
        return {"value": key["value"], "default": key["default"]}
    return {"value": key["text"], "default": key["default_text"]}


def bare_value(key: "ConfigKey", as_json: bool) -> Any:
    """Returns the value of a key: typed for JSON, otherwise as in a configuration file."""
    return value_of(key, as_json)["value"]


def origin(key: "ConfigKey") -> str:
    """Returns the layer of a value, and its file or variable."""
    return key["layer"] if key["source"] is None else f"{key['layer']} {key['source']}"


def escaped(text: str) -> str:
    """Escapes a value for a properties file."""
    return text.replace("\\", "\\\\")


def facts_of(name: str) -> dict[str, Any]:
    """Returns the facts about a key, whether it is used or not."""
    keys, _ = _rocketpy.config_keys(None, [], False)
    for key in keys:
        if key["name"] == name:
            return used_facts(key)
    fixed, paths = _rocketpy.config_unused_keys()
    for known, only, feature in fixed:
        if known == name:
            return {
                "key": name,
                "section": "Apache's keys with one value",
                "only_value": only,
                "description": f"Other values are errors: they need {feature}, which is not supported yet.",
            }
    for known, place in paths:
        if known == name:
            return {
                "key": name,
                "section": "Paths that cannot change",
                "only_value": f"{place} in the folder of storePathRootDir",
                "description": "Other values are errors. Apache's brokers since 3.2.6 ignore the key.",
            }
    return {
        "key": name,
        "section": "Apache's keys without a meaning here",
        "description": "Tunes a component that does not exist here: every value is accepted and has no effect.",
    }


def used_facts(key: "ConfigKey") -> dict[str, Any]:
    """Returns the facts about a used key."""
    facts: dict[str, Any] = {"key": key["name"], "section": key["section"], "type": key["kind"]}
    if key["unit"] is not None:
        facts["unit"] = key["unit"]
    if key["bounds"] is not None:
        facts["bounds"] = "from {} to {}".format(*key["bounds"])
    if key["choices"]:
        facts["values"] = key["choices"]
    facts["default"] = key["default_text"] or None
    facts["description"] = key["description"]
    facts["apache"] = apache(key)
    facts["changes_while_running"] = key["is_changeable"]
    return facts


def apache(key: "ConfigKey") -> str:
    """Describes how Apache differs."""
    if key["alias_of"] is not None:
        return f"uses the name {key['alias_of']}"
    if key["apache_default"] is None:
        return "does not have this key"
    if key["apache_default"] == key["default_text"]:
        return "has the same default"
    return f"has a different default: {key['apache_default']}"
