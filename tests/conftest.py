"""What holds for all tests."""

import pytest

_LONG = ("cluster", "horovod")
"""Marks of tests that start real processes."""
_LONG_FOLDERS = ("tests/local/", "tests/hvd_elastic/worker/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long tests first: those that wait share the cores with the short ones, and no worker ends late."""
    items.sort(key=lambda item: not _is_long(item))


def _is_long(item: pytest.Item) -> bool:
    return item.nodeid.startswith(_LONG_FOLDERS) or any(item.get_closest_marker(mark) for mark in _LONG)
