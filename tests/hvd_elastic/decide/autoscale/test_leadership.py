"""Of several autoscalers one leads, at any time, over real HTTP."""

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError
from hvd_elastic.decide.autoscale.controller_manifests import manifests
from hvd_elastic.decide.autoscale.leadership import LEASE_NAME, LEASE_SECONDS, RENEW_DEADLINE_SECONDS, Leadership
from testbed.kube_api import LEASES, KubeApi, Request, Status


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api() -> Iterator[KubeApi]:
    api = KubeApi()
    yield api
    api.stop()


@pytest.fixture
def cluster(api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterClient:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return ClusterClient.connect(context="here")


def candidate(cluster: ClusterClient, name: str, clock: Clock) -> Leadership:
    return Leadership(cluster, namespace="default", identity=name, clock=clock)


def test_the_first_leads_and_the_second_waits(cluster: ClusterClient) -> None:
    clock = Clock()
    one, two = candidate(cluster, "one", clock), candidate(cluster, "two", clock)
    assert one.attempt()
    assert not two.attempt()
    assert (one.holds(), two.holds(), two.holder) == (True, False, "one")


def test_the_empty_lease_that_was_applied_with_it_is_taken(api: KubeApi, cluster: ClusterClient) -> None:
    lease = next(one for one in manifests(image="i", namespace="default") if one["kind"] == "Lease")
    api.put(LEASES, lease)
    clock = Clock()
    assert candidate(cluster, "one", clock).attempt()
    assert not candidate(cluster, "two", clock).attempt()


def test_a_leader_that_renews_stays_leader(cluster: ClusterClient) -> None:
    clock = Clock()
    one, two = candidate(cluster, "one", clock), candidate(cluster, "two", clock)
    for _ in range(20):
        assert one.attempt()
        assert not two.attempt()
        clock.now += 5


def test_another_takes_over_when_the_leader_is_silent_for_the_lease(cluster: ClusterClient) -> None:
    clock = Clock()
    one, two = candidate(cluster, "one", clock), candidate(cluster, "two", clock)
    one.attempt()
    two.attempt()
    clock.now += LEASE_SECONDS - 0.1
    assert not two.attempt()
    assert not one.holds()
    clock.now += 0.2
    assert two.attempt()
    assert not one.attempt()


def test_a_lease_that_is_given_back_is_free_at_once(cluster: ClusterClient) -> None:
    clock = Clock()
    one, two = candidate(cluster, "one", clock), candidate(cluster, "two", clock)
    one.attempt()
    two.attempt()
    one.release()
    assert not one.holds()
    assert two.attempt()


def test_of_two_that_write_at_the_same_time_one_is_refused(api: KubeApi, cluster: ClusterClient) -> None:
    clock = Clock()
    one, two = candidate(cluster, "one", clock), candidate(cluster, "two", clock)
    one.attempt()
    one.release()

    def meanwhile(request: Request) -> None:
        if request.method == "PATCH":
            api.fault = lambda _request: None
            assert two.attempt()

    api.fault = meanwhile
    assert not one.attempt()
    assert (one.holds(), two.holds()) == (False, True)


def test_a_leader_that_cannot_renew_acts_no_more_after_the_deadline(api: KubeApi, cluster: ClusterClient) -> None:
    clock = Clock()
    one = candidate(cluster, "one", clock)
    one.attempt()

    def away(_request: Request) -> None:
        raise Status(503)

    api.fault = away
    clock.now += RENEW_DEADLINE_SECONDS - 1
    with pytest.raises(ClusterError):
        one.attempt()
    assert one.holds()
    clock.now += 1
    assert not one.holds()


@pytest.mark.parametrize("seed", range(5))
def test_never_do_two_lead(api: KubeApi, cluster: ClusterClient, seed: int) -> None:
    """Three candidates, a server that fails now and then, and candidates that are stopped for some seconds."""
    rng, clock = random.Random(seed), Clock()
    three = [candidate(cluster, name, clock) for name in ("one", "two", "three")]
    asleep = [0.0, 0.0, 0.0]
    led = set()

    def unreliable(_request: Request) -> None:
        if rng.random() < 0.2:
            raise Status(500)

    api.fault = unreliable
    for _ in range(300):
        clock.now += rng.uniform(0.5, 2.5)
        for place, one in enumerate(three):
            if clock.now < asleep[place]:
                continue
            with contextlib.suppress(ClusterError):
                one.attempt()
            if rng.random() < 0.02:
                asleep[place] = clock.now + rng.uniform(5, 40)
            leading = [each for each in three if each.holds()]
            assert len(leading) <= 1
            led |= {place for place, each in enumerate(three) if each.holds()}
    assert len(led) > 1


def test_a_keeper_takes_the_lease_and_gives_it_back(api: KubeApi, cluster: ClusterClient) -> None:
    one, stop = Leadership(cluster, namespace="default", identity="one"), threading.Event()
    keeper = threading.Thread(target=one.keep, args=(stop,))
    keeper.start()
    with api.changed:
        assert api.changed.wait_for(lambda: LEASE_NAME in api.objects[LEASES], timeout=30)
    stop.set()
    keeper.join(30)
    assert not keeper.is_alive()
    assert api.objects[LEASES][LEASE_NAME]["spec"]["holderIdentity"] == ""
