"""A CapacityBuffer that follows the reserve, so that a cluster autoscaler keeps the nodes for it ready.

It is safe only because this autoscaler leaves the reserve idle. Training that filled it would have the next nodes
started, and fill those, without end: so the buffer is emptied while a job that is not shared waits for GPUs, and while
jobs could give the reserve back; and a chunk is one GPU, which fits wherever one is idle.
"""

import logging
from dataclasses import dataclass

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError
from hvd_elastic.client.connection.known_api import CAPACITY_BUFFERS
from hvd_elastic.decide.autoscale.decision import SharedCluster
from hvd_elastic.decide.autoscale.forecast.capacity_buffers import MOST_CHUNKS, BufferedPod
from hvd_elastic.decide.autoscale.node_pool import pools_of
from hvd_elastic.policy.reserve import DemandHistory, buffer_chunks, wanted_reserve
from hvd_elastic.system.plain_words import count_words
from hvd_elastic.system.untrusted_values import one_line

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferDecision:
    """How many chunks the buffer asks for."""

    chunks: int
    refusal: str = ""
    """Why it must ask for none; empty: it follows the reserve."""


def buffer_decision(
    state: SharedCluster, buffered: BufferedPod, history: DemandHistory, now: float, *, quantile: float
) -> BufferDecision:
    """The chunks of a turn. `now`: Unix seconds. Equal input, equal output."""
    asked = sum(pod.gpus for pod in buffered.pods)
    if len(buffered.pods) != 1 or asked != 1:
        words = f"its PodTemplate {buffered.buffer.template} asks for {count_words(asked, 'GPU')}: give it one GPU"
        return BufferDecision(chunks=0, refusal=words)
    shared = {job.name for job in state.jobs}
    if waits := sorted({pod.job for pod in state.pods if pod.job and pod.job not in shared and not pod.node}):
        words = f"{waits[0]} waits for GPUs and is not shared, so it would take them: give it `autoscale: shared`"
        return BufferDecision(chunks=0, refusal=words)
    wanted = min(wanted_reserve(history, now, quantile=quantile), MOST_CHUNKS)
    unclaimed = sum(pool.unclaimed for pool in pools_of(state.jobs, state.nodes, state.pods, now)) - state.coming
    spare = unclaimed - sum(job.min * job.gpus for job in state.jobs)
    largest = max((node.gpus for node in state.nodes), default=0)
    return BufferDecision(chunks=buffer_chunks(wanted, spare=spare, node=largest))


class ReserveBuffer:
    """One CapacityBuffer. Others make it, with its PodTemplate; here only its `replicas` are written."""

    def __init__(self, cluster: ClusterClient, name: str) -> None:
        """`name`: `NAMESPACE/NAME`."""
        self._cluster, self.name = cluster, name
        self._said = ""

    def follow(self, state: SharedCluster, history: DemandHistory, now: float, *, quantile: float) -> None:
        """Write the chunks of this turn, if they are others. What cannot be written is said, and no harm yet."""
        if state.own_buffer is None:
            self._say("it, or its PodTemplate, is not there")
            return
        decision = buffer_decision(state, state.own_buffer, history, now, quantile=quantile)
        try:
            self._write(decision.chunks, state.own_buffer)
        except ClusterError as error:
            self._say(str(error))
            return
        self._say(decision.refusal)

    def _write(self, chunks: int, buffered: BufferedPod) -> None:
        if chunks == buffered.buffer.asked:
            return
        namespace, _, name = self.name.partition("/")
        root = CAPACITY_BUFFERS.served_path(self._cluster)
        path = f"{root}/namespaces/{namespace}/capacitybuffers/{name}"
        self._cluster.patch(path, {"spec": {"replicas": chunks}})
        log.info("the CapacityBuffer %s keeps %s ready", self.name, count_words(chunks, "GPU"))

    def _say(self, why: str) -> None:
        if why and why != self._said:
            log.warning("the CapacityBuffer %s does not follow the reserve: %s", self.name, one_line(why, 300))
        self._said = why
