"""The tables of docs/spark.md that say what the code says.

`UPDATE_DOCS=1 pytest tests/spark/test_docs.py` writes them.
"""

import ast
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import datasource, functions
from pyspark.sql.types import StructType

from pyspark_rocketpy import DefaultSource
from rocketpy.errors import NotSupportedError
from rocketpy.spark.aliases import ALIASES, IN_MILLISECONDS, OTHER_KAFKA, REFUSED, SAME
from rocketpy.spark.options import OPTION_NAMES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark.md"
FEATURES = {
    "`spark.read`, by path and over the network": datasource.DataSourceReader,
    "`decode`, `tag_hash`, `msg_id_parts`, `offset_msg_id_parts`": functions.arrow_udf,
    "`spark.readStream`, and limits of a batch": datasource.DataSourceStreamReader.getDefaultReadLimit,
    "`LagListener`": datasource.DataSourceStreamReader.reportLatestOffset,
}
"""What each feature of this package needs of Spark."""


def check_table(mark: str, rows: list[str]) -> None:
    """Compares a table of the page, or writes it."""
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(f"<!-- {mark} -->\n") + len(f"<!-- {mark} -->\n")
    end = text.index("<!-- end -->", start)
    wanted = "\n".join(rows) + "\n"
    if "UPDATE_DOCS" in os.environ:
        PAGE.write_text(text[:start] + wanted + text[end:], encoding="utf-8")
        return
    assert text[start:end] == wanted


def programs(heading: str) -> list[str]:
    """The Python of a section."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def test_the_page_says_which_spark_each_feature_needs():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (oldest,) = [re.fullmatch(r"pyspark>=([\d.]+)", one)[1] for one in extras["spark"] if one.startswith("pyspark")]
    rows = ["| feature | PySpark | needs of it |", "|---|---|---|"]
    for feature, api in FEATURES.items():
        since = re.search(r"versionadded:: ([\d.]+)", api.__doc__)[1]
        needed = max(version(oldest), version(since))
        rows.append(f"| {feature} | {'.'.join(map(str, needed))} | `{api.__qualname__}`, of {since} |")
    check_table("versions", rows)


def test_a_spark_without_limits_of_streams_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)  # as before 4.2
    reader = DefaultSource({"name_server": "h:1", "topic": "a"}).streamReader(StructType())
    with pytest.raises(NotSupportedError, match=r"has streams with Spark 4\.2 or newer"):
        reader.initialOffset()


def test_the_page_lists_the_options_of_sparks_kafka_source():
    rows = ["| Kafka's source | here |", "|---|---|"]
    plain_names = {name.replace("_", ""): name for name in OPTION_NAMES}
    for name in SAME:
        assert name.lower() in plain_names, f"{name} is no option here"
        rows.append(f"| `{name}` | the same, also as `{plain_names[name.lower()]}` |")
    for name, here in ALIASES.items():
        assert here in OPTION_NAMES, f"{here} is no option here"
        unit = ", in milliseconds under Kafka's name" if name in IN_MILLISECONDS else ""
        rows.append(f"| `{name}` | the same, also as `{here}`{unit} |")
    rows += [f"| `{name}` | refused: {why} |" for name, why in REFUSED.items()]
    rows.append(f"| other options `kafka.*` | refused: {OTHER_KAFKA} |")
    check_table("kafka options", rows)


def test_the_examples_of_udfs_run(spark, topic, send, rocketpy_server):
    send(topic, [b'{"carrier": "UA", "hour": 7, "dep_delay": 1.5}', b"no flight"])
    columns = "body,tag,queue_id,queue_offset,msg_id,offset_msg_id,born_at"
    options = {"path": str(rocketpy_server.path), "topic": topic, "columns": columns}
    names = {"spark": spark, "messages": spark.read.format("rocketpy").options(**options).load()}
    found = programs("Decoding bodies") + programs("Tags and message ids")
    assert len(found) == 3
    for program in found:
        *statements, last = ast.parse(program).body  # the last is, or makes, a DataFrame
        exec(compile(ast.Module(statements, []), str(PAGE), "exec"), names)
        frame = eval(compile(ast.Expression(last.value), str(PAGE), "eval"), names)
        frame.collect()
