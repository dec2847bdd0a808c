"""The cluster of the session, a namespace and a timeline for each test, and the picture of one that failed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster.site import Site, attach, existing, make_namespace, remove_namespace, running_or_up, told
from testbed.cluster.standing import Scenario, Standing
from testbed.cluster.timeline import Timeline
from testbed.kube import cluster as kube
from testbed.kube.errors import MissingError
from testbed.kube.kubectl import Kubectl
from tests.cluster import picture

_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Site]:
    """The cluster that runs, or one that is up for this session only. Without either the session ends: why is said."""
    if site := existing():
        yield site
        return
    try:
        running, ours = running_or_up()
    except MissingError as error:
        pytest.exit(str(error), returncode=4)
    try:
        yield attach(running)
    finally:
        if ours:
            kube.down()


@pytest.fixture
def namespace(cluster: Site, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """A namespace of the test's own; everything in it goes with it."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_")).strip("-")[:40].strip("-")
    yield make_namespace(cluster, name)
    remove_namespace(cluster, name)


@pytest.fixture
def timeline(namespace: Kubectl, request: pytest.FixtureRequest) -> Iterator[Timeline]:
    """What happens in the namespace, kept in out/cluster/<namespace>."""
    recorded = Timeline(namespace, output(request) / namespace.namespace)
    recorded.start()
    yield recorded
    recorded.stop(told(namespace))
    _draw_failure(request, recorded)
    recorded.require_no_false_name()


@pytest.fixture(scope="module")
def standing(cluster: Site, request: pytest.FixtureRequest) -> Iterator[Standing]:
    """The job that the scenarios of a launcher (the parameter) share."""
    kept = Standing(site=cluster, launcher=request.param, folder=output(request) / f"standing-{request.param}")
    yield kept
    kept.end()


@pytest.fixture
def scenario(standing: Standing, request: pytest.FixtureRequest) -> Iterator[Scenario]:
    """The shared job at full size, and what happens in its namespace, kept in out/cluster/standing-<launcher>."""
    entered = standing.enter(request.node.name)
    yield entered
    entered.timeline.keep(entered.job.shared / "events")
    _draw_failure(request, entered.timeline)
    entered.timeline.require_no_false_name(since=entered.began)


def output(request: pytest.FixtureRequest) -> Path:
    """Where what happened in a test is kept."""
    return Path(request.config.rootpath) / "out" / "cluster"


def _draw_failure(request: pytest.FixtureRequest, recorded: Timeline) -> None:
    if request.node.stash.get(_FAILED, False):
        print(f"timeline: {recorded.folder}\npicture: {picture.draw(recorded)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Tell the timeline whether its test failed."""
    report = yield
    if report.when == "call":  # type: ignore[attr-defined]
        item.stash[_FAILED] = report.failed  # type: ignore[attr-defined]
    return report
