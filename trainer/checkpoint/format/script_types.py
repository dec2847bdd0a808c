"""Classes of the script in an archive: named tuples and enumerations, by the name of their module and their own.

Reading looks a class up among the modules that the script has imported. It imports nothing and calls nothing of the
class, so that an archive runs no code.
"""

import sys
from enum import EnumMeta
from typing import Any, Final

from hvd_elastic.trainer.checkpoint.errors import IncompatibleError

_WAY_OUT: Final = "import or define it before the checkpoint is loaded"


def name_of(kind: type) -> tuple[str, str] | None:
    """Return the names of the class's module and of the class in it; None if it cannot be found by them."""
    name = kind.__module__, kind.__qualname__
    return name if _look_up(*name) is kind else None


def find_enum(module: str, name: str, member: str) -> object:
    """Return a member of an enumeration. Raises IncompatibleError if the script has no such member."""
    kind = _look_up(module, name)
    members = vars(kind).get("_member_map_", {}) if isinstance(kind, EnumMeta) else {}
    if member not in members:
        raise IncompatibleError(f"the checkpoint has {member} of the enumeration {name} of {module}: {_WAY_OUT}")
    return members[member]


def find_named_tuple(module: str, name: str, fields: list[str]) -> type[tuple[Any, ...]]:
    """Return a class of named tuples. Raises IncompatibleError if the script has none with these fields."""
    kind = _look_up(module, name)
    if not isinstance(kind, type) or not issubclass(kind, tuple) or list(getattr(kind, "_fields", ())) != fields:
        raise IncompatibleError(
            f"the checkpoint has the named tuple {name} of {module} with the fields {', '.join(fields)}: {_WAY_OUT}"
        )
    return kind


def _look_up(module: str, name: str) -> object:
    found: object = sys.modules.get(str(module))
    for part in str(name).split("."):
        # Not getattr(): a module's own __getattr__ may import.
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found
