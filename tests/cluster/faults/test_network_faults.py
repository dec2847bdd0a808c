"""What befalls the network between two nodes that a job stands on, two workers on each."""

from collections.abc import Iterator

import pytest

from testbed.cluster import inference, jobs
from testbed.cluster.site import Site
from testbed.cluster.standing import LAUNCHERS, SIZE, Scenario, Standing, nothing_lost
from testbed.kube.network import NoNetemError
from tests.cluster.conftest import output
from tests.cluster.faults.reports import little_lost

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(480, func_only=True),
    pytest.mark.parametrize("standing", LAUNCHERS, indirect=True),
]


@pytest.fixture(scope="module")
def standing(cluster: Site, request: pytest.FixtureRequest) -> Iterator[Standing]:
    """Rank 0 of a young job is on the on-demand node, the first of the hosts."""
    spot = cluster.local().nodes["spot"]
    spot.set_gpus(cluster.kubectl, SIZE - 2)
    kept = Standing(
        site=cluster,
        launcher=request.param,
        folder=output(request) / f"standing-apart-{request.param}",
        keys={"node_labels": {}, "workers": jobs.workers((1, SIZE, SIZE))},
    )
    try:
        yield kept
        kept.end()
    finally:
        spot.set_gpus(cluster.kubectl, spot.node.gpus)


def test_a_node_is_mute(cluster: Site, scenario: Scenario) -> None:
    """Its pods hear the others, and nobody hears them: the others go on without."""
    job, link = scenario.job, cluster.local().nodes["spot"].link
    mute = scenario.timeline.mark("the spot node's pods are mute")
    link.set_pods_mute(mute=True)
    try:
        job.wait_size(SIZE - 2, since=mute, within_seconds=180)
        job.wait_steps(20)
    finally:
        back = scenario.timeline.mark("they are heard again")
        link.set_pods_mute(mute=False)
    job.wait_size(SIZE, since=back, within_seconds=180)
    little_lost(scenario.account)


def test_packets_get_lost(cluster: Site, scenario: Scenario) -> None:
    """One of a hundred, in either direction: TCP repeats them, and training is slow."""
    job = scenario.job
    scenario.timeline.mark("packets get lost")
    with cluster.local().nodes["spot"].link.losing(0.01):
        job.wait_steps(100, within_seconds=240)
    back = scenario.timeline.mark("none is lost any more")
    job.wait_size(SIZE, since=back)
    job.wait_steps(20)
    little_lost(scenario.account)


def test_the_network_is_slow(cluster: Site, scenario: Scenario) -> None:
    job = scenario.job
    try:
        with cluster.local().nodes["spot"].link.emulating("delay 20ms 10ms", "loss 1%"):
            scenario.timeline.mark("each packet takes 10 to 30 ms, and one of a hundred is lost")
            job.wait_steps(100, within_seconds=240)
    except NoNetemError as error:
        pytest.skip(f"this kernel has no netem: {error}")
    back = scenario.timeline.mark("all is as before")
    job.wait_size(SIZE, since=back)
    job.wait_steps(20)
    little_lost(scenario.account)


def test_names_are_not_resolved(cluster: Site, scenario: Scenario) -> None:
    """Everything in a job is reached by its address: it even shrinks and grows without DNS."""
    job, dns = scenario.job, cluster.local().daemon("coredns")
    load = inference.deploy(cluster, scenario.kubectl)
    scenario.timeline.mark("DNS is away")
    dns.stop()
    try:
        load.scale(1)
        load.wait(1)
        job.wait_size(SIZE - 1)
        back = scenario.timeline.mark("given back")
        load.scale(0)
        job.wait_size(SIZE, since=back)
        job.wait_steps(20)
    finally:
        dns.start()
    nothing_lost(scenario.account)
