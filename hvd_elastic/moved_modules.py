"""Old paths of modules that scripts import. For one release each leads to the new one, with a warning."""

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

MOVED: Final = {
    "hvd_elastic.mpijob.description.reader": "hvd_elastic.mpijob.job_reader",
}
"""What 0.1 documents by a path that is another one now."""


class MovedModules(MetaPathFinder, Loader):
    """Finds MOVED, after all others have found nothing."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return a spec for an old path; None for everything else."""
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Have the import system make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the module at the old path what the one at the new path has."""
        old, new = module.__name__, MOVED[module.__name__]
        warnings.warn(f"{old} is {new} now: import it from there", DeprecationWarning, stacklevel=2)
        there = vars(import_module(new))
        vars(module).update({name: value for name, value in there.items() if not name.startswith("__")})


def install() -> None:
    """Have Python ask for MOVED when an import finds nothing. A second call does nothing."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
