"""The CapacityBuffer that follows the reserve: how large it is, and when it is not safe."""

from dataclasses import replace

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.session import Session
from hvd_elastic.decide.autoscale.decision import AutoscalerMemory, SharedCluster, decide
from hvd_elastic.decide.autoscale.forecast.capacity_buffers import BufferedPod, CapacityBuffer
from hvd_elastic.decide.autoscale.reserve_buffer import ReserveBuffer, buffer_decision
from hvd_elastic.policy.reserve import WINDOW_SECONDS, DemandHistory
from testbed.kube_api import KubeApi, Request
from tests.hvd_elastic.decide.autoscale.model_cluster import START, job, node, pod

QUANTILE = 0.95
BUFFER = CapacityBuffer(name="serving/spare", chunks=0, asked=0, template="one-gpu")
OWN = BufferedPod(buffer=BUFFER, pods=(pod("chunk"),))


def rising(gpus: int) -> DemandHistory:
    """A history in which demand rises by so many GPUs in each window."""
    history = DemandHistory()
    for window in range(12):
        for seen in (0, gpus):
            now = START - (12 - window) * WINDOW_SECONDS
            history = history.seen(now, seen, waits=False, quantile=QUANTILE)
    return replace(history, care=1.0)


def test_it_is_as_large_as_the_reserve_though_no_gpu_is_idle() -> None:
    state = SharedCluster(jobs=(job("team/a"),), nodes=(node("n1", 1),), pods=(pod("chat", node="n1"),))
    decision = buffer_decision(state, OWN, rising(3), START, quantile=QUANTILE)
    assert (decision.chunks, decision.refusal) == (3, "")
    assert buffer_decision(state, OWN, DemandHistory(), START, quantile=QUANTILE).chunks == 0


def test_it_is_empty_while_jobs_could_give_the_reserve_back_on_one_node_less() -> None:
    """A chunk that inference takes the room of would have a node bought at once, which training then fills."""
    nodes = node("n1"), node("n2")
    for serving, chunks in ((4, 0), (5, 3)):
        pods = tuple(pod(f"chat-{number}", node="n1") for number in range(serving))
        state = SharedCluster(jobs=(job("team/a"),), nodes=nodes, pods=pods)
        assert buffer_decision(state, OWN, rising(3), START, quantile=QUANTILE).chunks == chunks


def test_it_is_empty_while_a_job_would_take_what_it_keeps() -> None:
    waits = pod("w", job="team/b", index=0)
    state = SharedCluster(jobs=(job("team/a"),), nodes=(node("n1"),), pods=(waits,))
    decision = buffer_decision(state, OWN, rising(3), START, quantile=QUANTILE)
    assert decision.chunks == 0
    assert decision.refusal.startswith("team/b waits for GPUs and is not shared")
    shared = SharedCluster(jobs=(job("team/b"),), nodes=(node("n1"),), pods=(waits,))
    assert buffer_decision(shared, OWN, rising(3), START, quantile=QUANTILE).chunks == 3


def test_a_chunk_is_one_gpu() -> None:
    """Idle GPUs of several nodes are no room for a chunk of several: the next node would be started, without end."""
    large = BufferedPod(buffer=BUFFER, pods=(pod("chunk", gpus=4),))
    decision = buffer_decision(SharedCluster(jobs=(), nodes=(), pods=()), large, rising(3), START, quantile=QUANTILE)
    assert (decision.chunks, decision.refusal) == (0, "its PodTemplate one-gpu asks for 4 GPUs: give it one GPU")


def test_training_leaves_idle_what_others_keep_ready() -> None:
    state = SharedCluster(jobs=(job("team/a"),), nodes=(node("n1", 8),), pods=(), buffered=3)
    (decision,), _ = decide(state, AutoscalerMemory(), START)
    assert decision.workers == 5
    whole = SharedCluster(jobs=(job("team/a"),), nodes=(node("n1", 8),), pods=(), buffered=30)
    (decision,), _ = decide(whole, AutoscalerMemory(), START)
    assert decision.workers == 1, "its min is asked for"


def test_only_another_number_is_written_and_only_another_fault_is_said(caplog: pytest.LogCaptureFixture) -> None:
    api = KubeApi()
    written: list[object] = []

    def patch(request: Request) -> dict[str, object]:
        written.append(request.body)
        return {}

    api.answers["/apis/autoscaling.x-k8s.io"] = lambda _: {
        "versions": [{"groupVersion": "autoscaling.x-k8s.io/v1alpha1"}]
    }
    api.answers["/apis/autoscaling.x-k8s.io/v1alpha1/namespaces/serving/capacitybuffers/spare"] = patch
    cluster = ClusterClient(Session(Login(server=f"http://127.0.0.1:{api.port}", namespace="default")))
    follows = ReserveBuffer(cluster, "serving/spare")
    state = SharedCluster(jobs=(), nodes=(), pods=(), own_buffer=OWN)
    try:
        follows.follow(state, rising(2), START, quantile=QUANTILE)
        follows.follow(state, DemandHistory(), START, quantile=QUANTILE)  # it asks for 0 already
        for _ in range(2):
            follows.follow(SharedCluster(jobs=(), nodes=(), pods=()), rising(2), START, quantile=QUANTILE)
    finally:
        api.stop()
    assert written == [{"spec": {"replicas": 2}}]
    (said,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert said == "the CapacityBuffer serving/spare does not follow the reserve: it, or its PodTemplate, is not there"
