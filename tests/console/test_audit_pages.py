"""Audit page: filter, hidden secrets, export."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from console_visitor import Visitor, console

if TYPE_CHECKING:
    from pathlib import Path

    import rocketpy

RULE = {"condition": "lag", "threshold": "1", "subject": "<b>mail*", "for": "0", "repeat": "0", "enabled": "yes"}


def test_audit_lists_filters_and_exports_actions(rocketpy_server: rocketpy.Server, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with console(rocketpy_server, "admin", data=data) as client:
        visitor = Visitor(client)
        assert "No actions yet." in visitor.page("/audit")
        for name in ("first", "second"):
            visitor.post("/alerts/rules/~new", step="apply", name=name, **RULE)
        page = visitor.page("/audit")
        assert "&lt;b&gt;mail*" in page
        assert "<b>mail" not in page
        rows = visitor.json("/audit")["lines"]["rows"]
        assert [(row["action"], row["object"], row["result"]) for row in rows] == [
            ("create rule", "second", "done"),
            ("create rule", "second", "started"),
            ("create rule", "first", "done"),
            ("create rule", "first", "started"),
        ]
        assert {row["address"] for row in rows} == {"testclient"}
        found = visitor.json("/audit?result=done&q=FIRST")["lines"]["rows"]
        assert [row["object"] for row in found] == ["first"]
        assert visitor.json("/audit?user=nobody")["lines"]["total"] == 0
    with console(rocketpy_server, "admin", data=data) as client:
        visitor = Visitor(client)
        answer = client.get("/cluster/audit/export?action=create+rule&result=done")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith('attachment; filename="audit-')
        assert [json.loads(line)["object"] for line in answer.text.splitlines()] == ["first", "second"]
        assert "export audit" in visitor.page("/audit")


def test_audit_without_a_data_folder_says_so_and_exports_memory(rocketpy_server: rocketpy.Server) -> None:
    with console(rocketpy_server, "admin") as client:
        visitor = Visitor(client)
        visitor.post("/alerts/rules/~new", step="apply", name="only", **RULE)
        assert "Start the console with <code>--data DIR</code>" in visitor.page("/audit")
        lines = client.get("/cluster/audit/export?q=only&action=create+rule").text.splitlines()
        assert [json.loads(line)["result"] for line in lines] == ["started", "done"]


def test_operator_may_not_see_the_audit(rocketpy_server: rocketpy.Server) -> None:
    with console(rocketpy_server, "operator") as client:
        visitor = Visitor(client)
        visitor.page("/audit", 403)
        visitor.page("/audit/export", 403)
        assert ">Audit<" not in visitor.page("/alerts")
