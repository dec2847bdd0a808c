"""The guarantees of all stores, in the clouds' own buckets, for whoever has them: `make test-clouds`."""

import inspect
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

from hvd_elastic.stores.location import Location
from hvd_elastic.stores.store import Store
from tests.trainer.checkpoint import test_stores

PROMISES: Final = {
    name: test
    for name, test in vars(test_stores).items()
    if name.startswith("test_") and list(inspect.signature(test).parameters) == ["store"]
}


VARIABLES: Final = ("HVD_ELASTIC_TEST_S3", "HVD_ELASTIC_TEST_GCS", "HVD_ELASTIC_TEST_AZURE")
"""Each has the URL of a prefix."""


@pytest.fixture(scope="module", params=VARIABLES)
def prefix(request: pytest.FixtureRequest) -> str:
    """The URL of a bucket that answers. One that does not is waited for once, and not in each test."""
    url = os.environ.get(request.param)
    if not url:
        pytest.skip(f"{request.param} names no prefix of a real bucket: make test-clouds")
    opened = Location.parse(url).open()
    opened.keys("manifests")
    opened.close()
    return url


@pytest.fixture
def store(prefix: str) -> Iterator[Store]:
    """A prefix that no other test has. What is written below it is deleted."""
    before, _, options = prefix.partition("?")
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


@pytest.mark.process
@pytest.mark.timeout(900)
def test_whoever_names_buckets_has_all_promises_tried_in_each(
    s3_url: str, gcs_url: str, azure_url: str, tmp_path: Path
) -> None:
    """As `make test-clouds` does it, on servers that stand for the clouds."""
    named = dict(zip(VARIABLES, (s3_url, gcs_url, azure_url), strict=True))
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", __file__, "-k", "a_promise_is_kept", f"--junitxml={report}"]
    done = subprocess.run(command, env={**os.environ, **named}, check=False, capture_output=True, text=True)
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    found = {key: int(suite.get(key, "")) for key in ("tests", "failures", "errors", "skipped")}
    assert found == {"tests": 3 * len(PROMISES), "failures": 0, "errors": 0, "skipped": 0}, done.stdout
