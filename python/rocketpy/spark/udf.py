"""Arrow UDFs: functions of whole columns in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocketpy.spark.columns import spark_type, struct_of
from rocketpy.spark.session import no_pyspark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def arrow_udf(function: Any, result: DataType | Mapping[str, str] | str) -> Callable[..., Column]:
    """Creates an Arrow UDF, for `select` and for `spark.udf.register`.

    Args:
        function: Function from pyarrow arrays to one. Spark reads the hints of a UDF, and wants none. A nested
            function travels to the workers by value.
        result: Type of the result; the name of a column type, or a struct of column types, needs no session.

    Raises:
        RocketPyError: PySpark 4.1 or newer is not installed.
    """
    try:
        from pyspark.sql import functions

        make_udf: Any = functions.arrow_udf  # type: ignore[attr-defined]  # not in Spark's stubs
    except (ImportError, AttributeError) as missing:
        raise no_pyspark() from missing
    if isinstance(result, str):
        result = spark_type(result)
    elif isinstance(result, Mapping):
        result = struct_of(result)
    udf: Callable[..., Column] = make_udf(function, returnType=result)
    return udf
