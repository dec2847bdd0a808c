"""The reserve that `hvd-elastic autoscale` keeps for inference, by the code that decides it in a cluster.

inference's demand, every ten seconds ──► DemandHistory ──► wanted_reserve ──► GPUs that jobs leave idle
              GPUs that jobs could give back, less those of a node ──► buffer_chunks ──► chunks of the capacity buffer
"""

from dataclasses import dataclass

from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.policy.reserve import WINDOW_SECONDS, DemandHistory, buffer_chunks, wanted_reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveRule:
    """How large it is, and who keeps it."""

    quantile: float
    """The share of five-minute windows in which it should be enough."""
    buffer: bool = False
    """Whether a capacity buffer of one-GPU chunks follows it, so that a cluster autoscaler buys nodes for it."""


class InferenceReserve:
    """Learns from the beginning of the day on, so it is 0 at first."""

    def __init__(self, cluster: ClusterDay, rule: ReserveRule, *, node: int) -> None:
        """`node`: GPUs of one that a cluster autoscaler may buy or take away."""
        self.history = DemandHistory()
        self.wanted = 0
        """GPUs that should be idle, however many are."""
        self._cluster, self._rule, self._node = cluster, rule, node
        self._window = -1.0

    def kept(self) -> int:
        """GPUs that jobs leave idle, of those that inference leaves to them."""
        return min(self.wanted, self._cluster.lendable)

    def look(self, now: float) -> float:
        """See the demand. The reserve is of whole windows, so it changes only as one begins."""
        table, quantile = self._cluster.table, self._rule.quantile
        demand = table.serving + table.promised
        self.history = self.history.seen(now, demand, waits=table.promised > 0, quantile=quantile)
        window = self.history.windows[-1].began
        if window > self._window:
            self._window, self.wanted = window, wanted_reserve(self.history, now, quantile=quantile)
        if self._rule.buffer:
            mins = sum(run.job.min * run.job.gpus for run in self._cluster.runs if run.has_work)
            self._cluster.chunks = buffer_chunks(self.wanted, spare=table.lendable - mins, node=self._node)
        return window + WINDOW_SECONDS
