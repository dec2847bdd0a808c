"""What holds for all tests."""

import logging
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from hvd_elastic.horovod.patch_set import installed_patches
from tests.gpu.machine import why_skipped

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has it ignored by what it starts in the background, and what the tests start would obey that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test measures time: a machine under load must not fail them.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


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


_LONG = ("cluster", "horovod")
"""Marks of tests that start real processes."""
_LONG_FOLDERS = ("tests/local/", "tests/hvd_elastic/worker/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long tests first: those that wait share the cores with the short ones, and no worker ends late."""
    items.sort(key=lambda item: not _is_long(item))
    for item in items:
        _expect_failure_without_its_patch(item)
        _skip_without_its_gpus(item)


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


def _is_long(item: pytest.Item) -> bool:
    return item.nodeid.startswith(_LONG_FOLDERS) or any(item.get_closest_marker(mark) for mark in _LONG)
