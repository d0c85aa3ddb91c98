"""Public names of the Python package with their signatures, read from the sources and the stub without an import."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import griffe

from public.compare import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INTERNAL = {"admin", "aio", "base", "cli", "console", "consuming", "demo", "producing", "servers"}
"""Modules of the package that users do not import: `rocketpy` exports the public names of them."""
MODULES = {"errors", "health"}
"""Modules in `__all__` of `rocketpy`."""
RESULTS = (
    "rocketpy.admin", "rocketpy.consuming.consumer", "rocketpy.health", "rocketpy.schedule", "rocketpy.spark",
    "rocketpy.stats", "rocketpy.store",
)  # fmt: skip
"""Modules whose dataclasses the package constructs: they may get new fields, so their constructors are not public."""
SPECIAL = (
    "__aenter__", "__aexit__", "__aiter__", "__anext__", "__bool__", "__call__", "__contains__", "__enter__", "__eq__",
    "__exit__", "__getitem__", "__init__", "__iter__", "__len__", "__lt__", "__new__", "__next__",
)  # fmt: skip
"""Special methods by which users use an object."""


def names(root: Path) -> list[str]:
    """Lists the public names, one line each: `[class|def|async def|option] DOTTED.NAME...`.

    Args:
        root: Root of the repository.
    """
    package: Any = griffe.load(
        "rocketpy", search_paths=[root / "python"], resolve_aliases=True, allow_inspection=False, resolve_external=False
    )
    found: dict[str, Any] = {}
    for path, name in _exported(root / "python/rocketpy"):
        target = package[f"{path}.{name}"[len("rocketpy.") :]]
        target = target.final_target if target.is_alias else target
        found.setdefault(target.canonical_path, (f"{path}.{name}", target))
    classes = {canonical for canonical, (_, target) in found.items() if target.is_class}
    lines = [line for shown, target in found.values() for line in _lines(shown, target, classes)]
    return sorted(lines, key=lambda line: (name_of(line), line))


def _exported(package: Path) -> Iterator[tuple[str, str]]:
    """Module and name of every public name; those of `rocketpy` itself come first."""
    modules = {"rocketpy": package / "__init__.py"}
    for path in sorted(package.iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if path.stem not in INTERNAL and not path.stem.startswith("_") and source.suffix == ".py" and source.exists():
            modules[f"rocketpy.{path.stem}"] = source
    for module, source in modules.items():
        for name in sorted(_listed(ast.parse(source.read_text()))):
            if not name.startswith("_"):
                yield module, name


def _listed(tree: ast.Module) -> set[str]:
    """Names in `__all__` of a module, or in the table that it makes `__all__` of."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
            if name == "__all__" and isinstance(value, ast.List):
                return set(ast.literal_eval(value))
            if name == "_NAMES":
                return MODULES | {each for listed in ast.literal_eval(value).values() for each in listed}
            if name == "_HOMES" and isinstance(value, ast.Dict):
                return set(ast.literal_eval(value))
    return set()


def _lines(shown: str, target: Any, classes: set[str]) -> Iterator[str]:
    if target.is_module:
        yield f"module {shown}"
    elif target.is_class:
        yield from _class(shown, target, classes)
    elif target.is_function and any("fixture" in str(decorator.value) for decorator in target.decorators):
        yield f"{shown}: {target.returns}"  # pytest passes what it asks for
    elif target.is_function:
        yield from _function(shown, target)
    else:
        is_alias = target.annotation is None or "TypeAlias" in str(target.annotation)
        yield f"{shown}: {target.value if is_alias else target.annotation}"


def _class(shown: str, target: Any, classes: set[str]) -> Iterator[str]:
    bases = [str(base) for base in target.bases]
    seen = [base for base in bases if not _is_internal(target, base, classes)]
    yield f"class {shown}({', '.join(seen)})"
    is_options = "TypedDict" in bases or shown.endswith("Options")
    is_enum = any(base.split(".")[-1].endswith("Enum") for base in bases)
    for name, member in target.all_members.items():
        member = _called(member.final_target if member.is_alias else member)
        owner = member.parent.canonical_path
        is_inherited = owner != target.canonical_path and owner in classes
        if is_inherited or (name.startswith("_") and name not in SPECIAL):
            continue
        path = f"{shown}.{name}"
        if member.is_function:
            if name != "__init__" or "dataclass" not in target.labels or not owner.startswith(RESULTS):
                yield from _function(path, member, is_at_once=member.name in target.attributes)
        elif is_options:
            yield f"option {path}: {_option(member)}"
        elif member.is_attribute:
            told = target.all_members.get("__init__")
            kind = _assigned(member, told) if member.annotation is None or str(member.annotation) == name else None
            yield f"{path}: {member.value if is_enum else kind or member.annotation}"


def _is_internal(target: Any, base: str, classes: set[str]) -> bool:
    """Whether a base class is one of the package that is not public."""
    try:
        path = target.parent.resolve(base.partition("[")[0])
    except griffe.NameResolutionError:
        return False
    return path.startswith("rocketpy.") and path not in classes


def _called(member: Any) -> Any:
    """Function that `at_once(CLASS.NAME, ...)` makes a method of; any other member itself."""
    made = re.match(r"at_once\((\w+)\.(\w+),", str(member.value)) if member.is_attribute else None
    if made is None:
        return member
    owner = member.parent.resolve(made[1]).removeprefix("rocketpy.")
    return member.package[owner].all_members[made[2]]


def _assigned(member: Any, init: Any) -> str:
    """Type of an attribute without an annotation: that of the parameter of its name."""
    parameters = {parameter.name: parameter for parameter in init.parameters} if init is not None else {}
    same = parameters.get(member.name)
    return str(same.annotation) if same is not None and same.annotation is not None else "object"


def _option(member: Any) -> str:
    """`T = DEFAULT` of an option that is annotated `Annotated[T, Default(DEFAULT)]`."""
    annotation = str(member.annotation)
    parsed = ast.parse(annotation, mode="eval").body
    if not (isinstance(parsed, ast.Subscript) and ast.unparse(parsed.value) == "Annotated"):
        return annotation
    kind, default = parsed.slice.elts[:2] if isinstance(parsed.slice, ast.Tuple) else (parsed.slice, None)
    is_given = isinstance(default, ast.Call) and default.args
    value = f" = {_value(member.parent, ast.unparse(default.args[0]))}" if is_given else ""
    return f"{ast.unparse(kind)}{value}"


def _function(shown: str, function: Any, *, is_at_once: bool = False) -> Iterator[str]:
    """Lines of a function or method.

    Args:
        shown: Its public name.
        function: The definition.
        is_at_once: Whether the name is that of a method which runs a coroutine function to its end.
    """
    start = "async def" if "async" in function.labels and not is_at_once else "def"
    is_method = function.parent.is_class and "staticmethod" not in function.labels
    overloads = function.overloads or (function.parent.overloads.get(function.name) if function.parent else None)
    for number, variant in enumerate(overloads or [function], 1):
        path = f"{shown}.overload{number}" if overloads else shown
        yield f"{start} {path}({_parameters(variant, is_method=is_method)}) -> {variant.returns or 'None'}"


def _parameters(function: Any, *, is_method: bool) -> str:
    parts: list[str] = []
    kinds = [parameter.kind.value for parameter in function.parameters]
    for place, parameter in enumerate(list(function.parameters)):
        kind = parameter.kind.value
        if kind == "keyword-only" and not {"keyword-only", "variadic positional"} & set(kinds[:place]):
            parts.append("*")
        if str(parameter.annotation) == "Never":  # only explains arguments that do not fit
            parts.extend(["*"] if kind == "variadic positional" else [])
        elif not (is_method and place == 0):
            stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
            note = f": {parameter.annotation}" if parameter.annotation is not None else ""
            default = "" if stars or parameter.default is None else f" = {_value(function, str(parameter.default))}"
            parts.append(f"{stars}{parameter.name}{note}{default}")
        if kind == "positional-only" and kinds[place + 1 : place + 2] != ["positional-only"] and parts:
            parts.append("/")
    return ", ".join(parts)


def _value(scope: Any, default: str) -> str:
    """Default of a parameter: of a constant its literal value, because its name is not public.

    Args:
        scope: Function or class in which the default is written.
        default: Source of the default.
    """
    if not default.isidentifier():
        return default
    try:
        constant = scope.package[scope.resolve(default).removeprefix("rocketpy.")]
        value = str((constant.final_target if constant.is_alias else constant).value)
    except (griffe.NameResolutionError, griffe.AliasResolutionError, AttributeError, KeyError):
        return default
    is_literal = not any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(ast.parse(value)))
    return value if is_literal else default
