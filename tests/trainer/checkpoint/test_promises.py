"""The README's table of what each store promises: every cell has a test that runs against that store."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from tests.hvd_elastic.stores.store_servers import STORES
from tests.trainer.checkpoint.test_cloud_identities import PODS
from tests.trainer.checkpoint.test_store_faults import CLOUDS

HERE: Final = Path(__file__).parent
PAGE: Final = HERE / "README.md"
COLUMNS: Final = ("s3", "gcs", "azure", "file")
FIXTURES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("store", "url"), STORES),
    "cloud": tuple(CLOUDS),
    "pod": tuple(PODS.values()),
    **dict.fromkeys(("s3_url", "aws"), ("s3",)),
    "gke": ("gcs",),
    **dict.fromkeys(("tiny", "tmp_path"), ("file",)),
}
"""The stores that a test runs against, by the first of its arguments that says so."""


def promises() -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """Each promise, its cell for each store, and the tests that are named."""
    section = PAGE.read_text(encoding="utf-8").partition("## What each store promises\n")[2].partition("\n#")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    for promise, *cells, named in rows[2:]:
        stores = dict(zip(COLUMNS, map(str.strip, cells), strict=True))
        yield promise.strip(), stores, re.findall(r"`(test_\w+)`", named)


def every_test() -> dict[str, Callable[..., Any]]:
    modules = [import_module(f"{__package__}.{file.stem}") for file in HERE.glob("test_*.py")]
    return {name: test for module in modules for name, test in vars(module).items() if name.startswith("test_")}


def stores_of(test: Callable[..., Any]) -> set[str]:
    return set(next((FIXTURES[name] for name in inspect.signature(test).parameters if name in FIXTURES), ()))


@pytest.mark.parametrize(("cells", "named"), [pytest.param(*row, id=promise) for promise, *row in promises()])
def test_each_cell_has_a_test_against_its_store(cells: Mapping[str, str], named: list[str]) -> None:
    here = every_test()
    assert named
    tested = set[str]().union(*(stores_of(here[name]) for name in named))
    assert tested == {store for store, cell in cells.items() if cell}
