"""Extension of griffe, which reads the code for the site: constructors show each of their arguments.

A class of the stub shows those of its `__new__`. Of a client, `unpack_typeddict` shows the options one by one under
`__init__`, and takes them off the signature: here they are marked as optional where the class names them together.
"""

from typing import Any

import griffe

OPTIONS = "options"


class Constructors(griffe.Extension):
    """Gives a class with `__new__` alone an `__init__`, the only constructor that griffe knows."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Copies the arguments of `__new__`, and marks `options` as optional."""
        new = cls.members.get("__new__")
        if isinstance(new, griffe.Function) and "__init__" not in cls.members:
            cls.set_member("__init__", griffe.Function("__init__", parameters=new.parameters, lineno=new.lineno))
        for section in cls.docstring.parsed if cls.docstring else ():
            if isinstance(section, griffe.DocstringSectionParameters):
                for parameter in section.value:
                    if parameter.name == OPTIONS:
                        parameter.value = "{}"
