"""What holds for all tests."""

import gc
import logging
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from hvd_elastic.horovod.patch_set import installed_patches
from tests import properties
from tests.gpu.machine import why_skipped

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has it ignored by what it starts in the background, and what the tests start would obey that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

properties.register()

_WITH_TORCH: Final = (
    "cluster/test_libraries.py",
    "gpu",
    "local",
    "trainer",
    "hvd_elastic/setup/monitoring",
    "hvd_elastic/horovod/test_wheel_build.py",
    "hvd_elastic/launcher/test_horovod_internals.py",
    "hvd_elastic/local/test_local_checks.py",
    "hvd_elastic/stores/test_location.py",
    "hvd_elastic/test_api.py",
    "mpijob/manifests/test_tensorboard.py",
)
"""Where tests import torch, or the parts of the product that do. No other test may: see `--torch`."""

_PYTHON: Final = re.compile(r"(python[\d.]*|hvd-elastic|horovodrun)")
_started: Final[list[str]] = []
"""Command lines of the Python processes that the test in progress has started."""


def _note_python(event: str, arguments: tuple[object, ...]) -> None:
    if event in {"subprocess.Popen", "os.posix_spawn"}:
        words = arguments[1]
        listed = [str(word) for word in words] if isinstance(words, list | tuple) else []
        if any(_PYTHON.fullmatch(Path(word).name) for word in listed):
            _started.append(" ".join(listed)[:200])


sys.addaudithook(_note_python)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tests that need no torch are a run of their own, whose processes need not import it."""
    parser.addoption(
        "--torch",
        choices=("only", "without"),
        help="only the tests that import torch, or all others, of which none may import it",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what belongs to the other run."""
    part = config.getoption("--torch")
    tests = Path(__file__).parent
    if part is None or collection_path in tests.parents or collection_path == tests:
        return None
    inside = any(collection_path.is_relative_to(tests / folder) for folder in _WITH_TORCH)
    above = any((tests / folder).is_relative_to(collection_path) for folder in _WITH_TORCH)
    if part == "only":
        return None if inside or above else True
    return True if inside else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Name the module that imports torch in the run without it."""
    before = "torch" in sys.modules
    report = yield
    if collector.config.getoption("--torch") == "without" and "torch" in sys.modules and not before:
        report.outcome, report.longrepr = "failed", f"imports torch: it belongs in one of {_WITH_TORCH}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Fixtures of a module count for the test that they are made for."""
    _started.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Have a test that is in the wrong run fail."""
    before = "torch" in sys.modules
    result = yield
    if _started and item.get_closest_marker("process") is None and not _is_elsewhere(item):
        pytest.fail(f"starts a Python process, so it needs the mark `process`: {_started[0]}", pytrace=False)
    if item.config.getoption("--torch") == "without" and "torch" in sys.modules and not before:
        pytest.fail(f"imports torch: it belongs in one of {_WITH_TORCH}", pytrace=False)
    return result


@pytest.fixture(autouse=True)
def levels_of_logging() -> Iterator[None]:
    """A verb that is called within the process sets them for its whole life."""
    before = {logger: logger.level for logger in (logging.getLogger(), *_own_loggers())}
    yield
    for logger in (logging.getLogger(), *_own_loggers()):
        logger.setLevel(before.get(logger, logging.NOTSET))


@pytest.fixture(autouse=True)
def checkpoints_left_open() -> Iterator[None]:
    """A durable tier that a test has left open would be the process's own for the next one's figures."""
    yield
    checkpoints = sys.modules.get("hvd_elastic.trainer.checkpoint.checkpoints")  # many a test needs no torch
    if checkpoints is not None:
        checkpoints._open.clear()


def _own_loggers() -> list[logging.Logger]:
    names = [name for name in logging.root.manager.loggerDict if name.startswith("hvd_elastic")]
    return [logging.getLogger(name) for name in names]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long tests first: those that wait share the cores with the short ones, and no worker ends late."""
    items.sort(key=lambda item: item.get_closest_marker("process") is None and not _is_elsewhere(item))
    for item in items:
        _expect_failure_without_its_patch(item)
        _skip_without_its_gpus(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what pytest knows of thousands of tests out of each search for garbage, and of the trainer's for loops."""
    if session.config.getoption("--torch") == "without" and "torch" in sys.modules:
        raise pytest.UsageError("a conftest.py imports torch in the run without it")
    gc.collect()
    gc.freeze()


def _expect_failure_without_its_patch(item: pytest.Item) -> None:
    """A test of what a patch of Horovod repairs fails with a Horovod that lacks it. If it passes, it tests nothing."""
    needed = {mark.args[0] for mark in item.iter_markers("needs_patch")}
    if lacking := needed and needed.difference(installed_patches()):
        item.add_marker(pytest.mark.xfail(reason=f"Horovod lacks {', '.join(sorted(lacking))}", strict=True))


def _skip_without_its_gpus(item: pytest.Item) -> None:
    """A test says how many GPUs it needs; its CPU form, if it is marked at all, needs none."""
    needed = max((mark.args[0] for mark in item.iter_markers("gpu")), default=0)
    if needed and (why := why_skipped(needed)):
        item.add_marker(pytest.mark.skip(reason=why))


def _is_elsewhere(item: pytest.Item) -> bool:
    """Whether its own mark keeps it out of both runs."""
    return any(item.get_closest_marker(mark) for mark in ("cluster", "faults", "gpu", "image"))
