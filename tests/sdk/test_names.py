"""Each public name is listed once for Python; what type checkers read says the same."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import rocketpy
import rocketpy.spark


@pytest.mark.parametrize("package", [rocketpy, rocketpy.spark], ids=lambda package: package.__name__)
def test_type_checkers_see_the_names_that_python_finds(package):
    assert names_for_type_checkers(package) == set(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="nothing"):
        package.nothing  # noqa: B018


def names_for_type_checkers(package):
    """Names that the imports below `if TYPE_CHECKING` give."""
    (block,) = [
        part
        for part in ast.parse(Path(package.__file__).read_text()).body
        if isinstance(part, ast.If) and isinstance(part.test, ast.Name)
    ]
    names = set()
    for statement in block.body:
        for alias in statement.names:
            if alias.name == "*":
                names.update(import_module(statement.module).__all__)
            else:
                assert alias.asname == alias.name, f"not exported to type checkers without `as`: {alias.name}"
                names.add(alias.name)
    return names
