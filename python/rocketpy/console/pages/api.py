"""API: its table for people, and its description in OpenAPI for machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import FileResponse

from rocketpy.console.api_table import API, Entry
from rocketpy.console.routes import ROUTES

if TYPE_CHECKING:
    from starlette.responses import Response

    from rocketpy.console.view import View

FILE = Path(__file__).parent.parent / "openapi.json"


@dataclass(frozen=True, slots=True)
class ApiRow:
    """One method of one path."""

    method: str
    path: str
    action: str
    permission: str
    parameters: tuple[str, ...]
    """Parameters of the query, or fields of the form."""


def api_rows() -> list[ApiRow]:
    """All methods and paths of the API, in the order of the table of routes."""
    found: list[ApiRow] = []
    for route in ROUTES:
        if not route.api:
            continue
        entry = API.get(route.handler, Entry())
        path = "/api/v1" + route.path.replace("/C/", "/{cluster}/", 1)
        for method in route.methods:
            parameters = entry.query if method == "GET" else entry.form
            found.append(ApiRow(method, path, route.action, route.needs(method), parameters))
    return found


async def index(view: View) -> Response:
    """The table of the API."""
    return view.render("api.html", data=api_rows())


async def openapi(view: View) -> Response:
    """The description of the API. A test makes the file of the table of routes and the types of the answers."""
    return FileResponse(FILE, media_type="application/json")
