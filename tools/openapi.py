"""Makes the description of the console's API: of its table of routes and of the types of its answers.

Usage: `python tools/openapi.py > python/rocketpy/console/openapi.json`, or UPDATE_DOCS=1 with its test.
"""

import ast
import importlib
import inspect
import json
import re
import sys
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter

from rocketpy.console.api_table import API, Entry
from rocketpy.console.routes import ROUTES, Route, handler_of
from rocketpy.console.tables import Rows

PARAMETER = re.compile(r"\{(\w+)\}")
PREVIEW = "rocketpy.console.steps:Preview"
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "string"},
        "hint": {"type": ["string", "null"]},
        "may_have_been_applied": {"type": "boolean"},
    },
}
RESULT = {"type": "object", "required": ["result"], "properties": {"result": {"type": "string"}}}
FLAGS = {"enabled", "force", "remove", "super", "sync", "default"}
"""Fields that are `yes` or left out."""


def complete_names(module: Any) -> None:
    """Imports the names of a module that only type checkers see: pydantic reads the annotations."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for one in node.body:
                with suppress(ImportError):
                    exec(compile(ast.Module([one], []), "<types>", "exec"), module.__dict__)


def type_of(name: str) -> Any:
    """Type of `module:type`; a tuple of it for `tuple module:type`, a page of it for `rows module:type`."""
    kind, _, place = name.rpartition(" ")
    module, _, attribute = place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    return tuple[found, ...] if kind == "tuple" else Rows[found] if kind == "rows" else found


def schemas(names: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Schemas by name, and their shared definitions."""
    ordered = sorted(names)
    inputs = [(name, "serialization", TypeAdapter(type_of(name))) for name in ordered]
    found, shared = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    return {name: slim(found[name, "serialization"]) for name in ordered}, slim(shared.get("$defs", {}))


def slim(schema: Any) -> Any:
    """A schema without the titles that pydantic makes of names, with the first paragraph of each docstring."""
    if isinstance(schema, dict):
        kept = {name: slim(one) for name, one in schema.items() if name != "title" or not isinstance(one, str)}
        if isinstance(kept.get("description"), str):
            kept["description"] = " ".join(kept["description"].split("\n\n")[0].split())
        return kept
    return [slim(one) for one in schema] if isinstance(schema, list) else schema


def parameters_of(route: Route, path: str, entry: Entry, method: str) -> list[dict[str, Any]]:
    """Parameters of the path and of the query."""
    text = {"type": "string"}
    found = [{"name": name, "in": "path", "required": True, "schema": text} for name in PARAMETER.findall(path)]
    query = entry.query if method == "GET" else tuple(name for name in entry.query if name == "id")
    return found + [{"name": name, "in": "query", "required": False, "schema": text} for name in query]


def body_of(entry: Entry) -> dict[str, Any]:
    """Form of a POST."""
    kinds = {name: {"type": "string"} | ({"enum": ["yes"]} if name in FLAGS else {}) for name in entry.form}
    if "step" in kinds:
        kinds["step"]["enum"] = ["preview", "apply"]
    schema = {"type": "object", "properties": kinds}
    return {"content": {"application/x-www-form-urlencoded": {"schema": schema}}}


def summary_of(route: Route, method: str) -> str:
    """First sentence of the handler."""
    text = inspect.getdoc(handler_of(route)) or route.action
    return text.split("\n")[0].rstrip(".")


def operation(route: Route, path: str, method: str, known: dict[str, Any]) -> dict[str, Any]:
    """One method of one path."""
    entry = API.get(route.handler, Entry())
    answer: dict[str, Any] = {}
    if method == "GET":
        answer = known[entry.answer] if entry.answer else {}
    else:
        answer = known[entry.result] if entry.result else RESULT
        if "step" in entry.form:
            answer = {"anyOf": [answer, known[PREVIEW]]}
    error = {"description": "Refused or failed", "content": {"application/json": {"schema": ERROR}}}
    found: dict[str, Any] = {
        "operationId": f"{method.lower()}_{re.sub(r'[^a-z]+', '_', path.removeprefix('/{cluster}')).strip('_')}",
        "summary": summary_of(route, method),
        "description": f"Permission: {route.needs(method)}. Action in the audit: {route.action}.",
        "parameters": parameters_of(route, path, entry, method),
        "responses": {
            "200": {"description": "Done", "content": {"application/json": {"schema": answer}}},
            "default": error,
        },
    }
    if method == "POST" and entry.form:
        found["requestBody"] = body_of(entry)
    return found


def description() -> dict[str, Any]:
    """The whole description."""
    served = [route for route in ROUTES if route.api]
    for route in served:
        handler_of(route)
    for name in [name for name in sys.modules if name.startswith(("rocketpy.console", "rocketpy.admin"))]:
        complete_names(sys.modules[name])
    entries = [API.get(route.handler, Entry()) for route in served]
    names = {name for entry in entries for name in (entry.answer, entry.result) if name} | {PREVIEW}
    known, shared = schemas(names)
    paths: dict[str, dict[str, Any]] = {}
    for route in served:
        path = route.path.replace("/C/", "/{cluster}/", 1)
        for method in route.methods:
            paths.setdefault(path, {})[method.lower()] = operation(route, path, method, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Console of RocketPy",
            "version": "1",
            "description": "The data of the console's pages, and its changes.",
        },
        "servers": [{"url": "/api/v1"}],
        "paths": paths,
        "components": {"schemas": shared},
    }


def lines_of(found: dict[str, Any]) -> str:
    """JSON with one line for each path and each schema."""

    def compact(value: Any) -> str:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    def block(values: dict[str, Any]) -> str:
        return "{\n" + ",\n".join(f"{compact(name)}:{compact(values[name])}" for name in sorted(values)) + "\n}"

    head = {name: value for name, value in found.items() if name not in {"paths", "components"}}
    parts = [compact(head)[:-1], f'"paths":{block(found["paths"])}']
    parts.append(f'"components":{{"schemas":{block(found["components"]["schemas"])}}}}}')
    return ",\n".join(parts)


if __name__ == "__main__":
    print(lines_of(description()))
