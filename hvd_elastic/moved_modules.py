"""Old paths of modules that scripts import. For one release each leads to the new one, with a warning."""

import importlib.util
import sys
import warnings
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Final, cast

MOVED: Final = {
    "hvd_elastic.autoscale": "hvd_elastic.decide.autoscale",
    "hvd_elastic.bench": "hvd_elastic.client.bench",
    "hvd_elastic.clusters": "hvd_elastic.setup.clusters",
    "hvd_elastic.demo": "hvd_elastic.local.demo",
    "hvd_elastic.jobs": "hvd_elastic.client",
    "hvd_elastic.monitoring": "hvd_elastic.setup.monitoring",
    "hvd_elastic.mpijob.description.reader": "hvd_elastic.mpijob.job_reader",
    "hvd_elastic.platform_kit": "hvd_elastic.setup.platform_kit",
    "hvd_elastic.simulate": "hvd_elastic.decide.simulate",
}
"""Modules, and packages with all that is in them."""


def new_path(old: str) -> str | None:
    """Return where a module is now; None if it did not move."""
    if not old.startswith("hvd_elastic."):
        return None
    for moved, new in MOVED.items():
        if old == moved or old.startswith(f"{moved}."):
            return new + old.removeprefix(moved)
    return None


class MovedModules(MetaPathFinder, Loader):
    """Finds what MOVED names, before others find a module below a moved package and load it a second time."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return a spec for an old path; None for everything else."""
        new = new_path(fullname)
        there = importlib.util.find_spec(new) if new else None
        if there is None:
            return None
        return ModuleSpec(fullname, self, is_package=there.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> None:
        """Have the import system make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the new path in the old one's place."""
        old = module.__name__
        new = new_path(old)
        assert new is not None
        warnings.warn(f"{old} is {new} now: import it from there", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return what `python -m` runs. The command line of 0.1 runs a module in the pods of a newer image."""
        new = new_path(fullname)
        there = importlib.util.find_spec(new) if new else None
        assert there is not None
        return cast("InspectLoader", there.loader).get_code(there.name)


def install() -> None:
    """Have imports look into MOVED. A second call does nothing."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
