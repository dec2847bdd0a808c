"""Modules that are named by strings, which no import-linter sees, and those that people import by an old path."""

import ast
import importlib
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.moved_modules import MOVED, MovedModules

ROOT = Path(__file__).parents[2]
PACKAGES = ("hvd_elastic", "mpijob", "discovery", "trainer", "priorityclasses")
NAMED = re.compile(r"(hvd_elastic(?:\.\w+){2,})")
"""With two names or more: `hvd_elastic.loss` is what a collective is called."""
RUN = re.compile(r"-m ((?:hvd_elastic|tests|benchmarks)(?:\.\w+)+)")


def named_in_code() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found = NAMED.fullmatch(node.value)
                    if found:
                        yield path.relative_to(ROOT).as_posix(), found[1]


def run_by_scripts() -> Iterator[tuple[str, str]]:
    for name in ("Makefile", "Dockerfile", ".ci/run", "tools/setup.sh", "CONTRIBUTING.md"):
        for module in RUN.findall((ROOT / name).read_text(encoding="utf-8")):
            yield name, module


def is_there(name: str) -> bool:
    """Tell whether it is a module, or a name in one."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return hasattr(importlib.import_module(module), attribute)


def test_all_modules_that_strings_name_are_there() -> None:
    named = {*named_in_code(), *run_by_scripts()}
    assert len(named) > 20
    assert not sorted((where, name) for where, name in named if not is_there(name))


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_leads_to_the_new_one_with_a_warning(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is {MOVED[old]} now"):
        moved = importlib.import_module(old)
    assert moved is importlib.import_module(MOVED[old])


def test_what_is_below_a_moved_package_is_there_once() -> None:
    with pytest.warns(DeprecationWarning, match=r"hvd_elastic\.jobs\.report is"):
        old = importlib.import_module("hvd_elastic.jobs.report.job_state")
    assert old is importlib.import_module("hvd_elastic.client.report.job_state")


def test_the_command_line_of_an_older_release_runs_a_module_by_its_old_path() -> None:
    spec = importlib.util.find_spec("hvd_elastic.jobs.doctor.rehearsal_training")
    assert spec is not None
    code = MovedModules().get_code(spec.name)
    assert code is not None
    assert code.co_filename.endswith("hvd_elastic/client/doctor/rehearsal_training.py")


def test_what_is_nowhere_is_missing_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'hvd_elastic\.mpijob\.nowhere'"):
        importlib.import_module("hvd_elastic.mpijob.nowhere")


def test_no_folder_has_more_modules_than_one_reads_at_a_glance() -> None:
    counts = Counter(
        path.parent
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    )
    assert {folder.relative_to(ROOT).as_posix(): count for folder, count in counts.items() if count > 14} == {}
