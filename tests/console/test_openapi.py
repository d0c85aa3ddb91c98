"""Description of the console's API: made of the code, and true of real answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import rocketpy.console
import waiting
from console_visitor import Visitor, console
from rocketpy.console.api_table import API
from rocketpy.console.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILE = Path(rocketpy.console.__file__).parent / "openapi.json"


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def test_description_is_that_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "tools" / "openapi.py")]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if os.environ.get("UPDATE_DOCS"):
        FILE.write_text(made)
    assert FILE.read_text() == made, "run this test with UPDATE_DOCS=1"


def test_table_of_the_api_names_routes_only() -> None:
    assert API.keys() <= {route.handler for route in ROUTES}


def test_operation_ids_are_unique_and_references_resolve(described: dict[str, Any]) -> None:
    operations = [one for path in described["paths"].values() for one in path.values()]
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    schemas = described["components"]["schemas"]
    used = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)))
    assert used
    assert used <= schemas.keys()


@pytest.fixture(scope="module")
def visitor(rocketpy_server: rocketpy.Server) -> Iterator[Visitor]:
    with console(rocketpy_server, "admin") as client:
        found = Visitor(client)
        waiting.wait_until(lambda: found.json("/brokers"), "the console has read the brokers")
        found.post("/alerts/silences/~new", rule="", subject="x", **{"for": "1 h", "reason": ""})
        found.post("/alerts/channels/~new", name="ops", kind="webhook", target="https://example.com/")
        yield found


TYPED = sorted(route.path for route in ROUTES if route.api and route.handler in API and API[route.handler].answer)


@pytest.mark.parametrize("path", [path for path in TYPED if "{user}" not in path])
def test_answer_fits_its_description(visitor: Visitor, described: dict[str, Any], path: str) -> None:
    schema = described["paths"][path.replace("/C/", "/{cluster}/", 1)]["get"]["responses"]["200"]
    whole = {"components": described["components"], **schema["content"]["application/json"]["schema"]}
    jsonschema.validate(visitor.json(path.removeprefix("/C").replace("{broker}", "broker-a")), whole)


def test_console_serves_the_description_and_its_table(visitor: Visitor, described: dict[str, Any]) -> None:
    assert visitor.client.get("/api/openapi.json").json() == described
    text = visitor.client.get("/api").text
    for path in described["paths"]:
        assert f"<code>/api/v1{path}</code>" in text
