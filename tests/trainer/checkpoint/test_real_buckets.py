"""The guarantees of all stores, in the clouds' own buckets, for whoever has them: `make test-clouds`."""

import inspect
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from hvd_elastic.stores.location import Location
from hvd_elastic.stores.store import Store
from tests.trainer.checkpoint import test_stores

PROMISES: Final = {
    name: test
    for name, test in vars(test_stores).items()
    if name.startswith("test_") and list(inspect.signature(test).parameters) == ["store"]
}


@pytest.fixture(params=["S3", "GCS", "AZURE"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A prefix that no other test has. What is written below it is deleted."""
    variable = f"HVD_ELASTIC_TEST_{request.param}"
    url = os.environ.get(variable)
    if not url:
        pytest.skip(f"{variable} names no prefix of a real bucket: make test-clouds")
    before, _, options = url.partition("?")
    own = f"{before.rstrip('/')}/{uuid.uuid4().hex}"
    small = "&".join(filter(None, [options, "part_mib=5", "threads=3"]))
    opened = Location.parse(f"{own}?{small}").open()
    yield opened
    opened.discard_uploads("data", lambda _: True)
    opened.delete([*opened.keys("manifests"), *opened.keys("data"), "latest"])
    opened.close()


def test_all_promises_are_tried() -> None:
    assert len(PROMISES) > 6


@pytest.mark.parametrize("promise", PROMISES.values(), ids=PROMISES)
def test_a_promise_is_kept(store: Store, promise: Callable[..., Any]) -> None:
    promise(store)
