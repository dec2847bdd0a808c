"""The sidecar's Prometheus metrics, and its health, over HTTP."""

import collections
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hvd_elastic.discovery.ledger.entries import RankSlow
from hvd_elastic.discovery.rules.eligibility import EligibleHosts
from hvd_elastic.discovery.sidecar.workers.prober import Prober
from hvd_elastic.system.http_server import RoutesServer, ServedPage

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """Numbers of the job beside which those of the list are read. None: not known yet."""

    min_workers: int
    max_workers: int
    wanted_workers: int | None
    """Its replicas, or another number that somebody asks for."""
    launcher_failures: int | None
    """Launchers that have failed by themselves."""
    operator_wait_seconds: float | None
    """For how long the MPI Operator has had pods to make or delete, and has done neither; 0: it has none."""
    slow_ranks: tuple[RankSlow, ...] = ()
    """Those for which the others wait."""


class Metrics:
    """The sidecar's own registry. Nothing is global, so that tests may have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.generation = Gauge(
            "hvd_elastic_discovery_generation", "Generation of the snapshot.", registry=self.registry
        )
        self.latency = Histogram(
            "hvd_elastic_discovery_event_to_snapshot_seconds",
            "From an event's arrival to the snapshot that holds it.",
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.faults = Counter(
            "hvd_elastic_discovery_watch_restarts_total",
            "Watches that were started over after a fault.",
            ["resource"],
            registry=self.registry,
        )
        self.lists = Counter(
            "hvd_elastic_discovery_lists_total", "Full lists requested from the API server.", ["resource"],
            registry=self.registry,
        )  # fmt: skip
        self.reaps = Counter(
            "hvd_elastic_discovery_reaps_total",
            "Dead worker pods that were deleted.",
            ["reason", "outcome"],
            registry=self.registry,
        )


class ScrapeCollector(Collector):
    """Reads these at each scrape, instead of updating gauges at each event."""

    def __init__(
        self,
        eligible: Callable[[], EligibleHosts],
        prober: Prober,
        contact_age_seconds: Callable[[], float],
        job: Callable[[], JobFigures],
    ) -> None:
        self._eligible, self._prober = eligible, prober
        self._contact_age_seconds, self._job = contact_age_seconds, job

    def collect(self) -> Iterable[Metric]:
        eligible = self._eligible()
        prefix = "hvd_elastic_discovery"
        yield GaugeMetricFamily(f"{prefix}_hosts", "Hosts offered to the launcher.", len(eligible.hosts))
        left_out = GaugeMetricFamily(f"{prefix}_left_out", "Pods not offered.", labels=["reason"])
        for reason, count in collections.Counter(out.reason for out in eligible.left_out).items():
            left_out.add_metric([reason], count)
        yield left_out
        yield CounterMetricFamily(f"{prefix}_reach_asked", "Probes of workers' ready ports.", self._prober.probes)
        yield CounterMetricFamily(f"{prefix}_reach_misses", "Probes without an answer.", self._prober.misses)
        yield GaugeMetricFamily(
            f"{prefix}_reach_suspect",
            "1: no worker answers, so the fault may be here.",
            float(self._prober.results.is_own_network_suspect),
        )
        yield GaugeMetricFamily(
            f"{prefix}_word_age_seconds", "Since the API server last confirmed the list.", self._contact_age_seconds()
        )
        steps = [view.step for view in self._prober.results.views.values() if view.step >= 0]
        yield GaugeMetricFamily(f"{prefix}_step", "Newest step that a worker has reported.", max(steps, default=-1))
        job = self._job()
        figures = (
            ("min_workers", "Workers below which the job does not train.", job.min_workers),
            ("max_workers", "Workers above which the job does not grow.", job.max_workers),
            ("wanted_workers", "Workers that the job asks for.", job.wanted_workers),
            ("launcher_failures", "Launchers that have failed by themselves.", job.launcher_failures),
            (
                "operator_wait_seconds",
                "Since the MPI Operator has had pods to make or delete, and has done neither; 0: it has none.",
                job.operator_wait_seconds,
            ),
        )
        for name, what, value in figures:
            if value is not None:
                yield GaugeMetricFamily(f"{prefix}_{name}", what, value)
        yield _slow_ranks(f"{prefix}_slow_rank", job.slow_ranks)


def _slow_ranks(name: str, slow: Iterable[RankSlow]) -> Metric:
    what = "How many times as long as the others a slow rank takes until it waits for them. None: no rank is slow."
    family = GaugeMetricFamily(name, what, labels=["rank", "worker", "node", "slowness"])
    for each in slow:
        family.add_metric([str(each.rank), each.pod, each.node, each.slowness], each.times)
    return family


def health_server(
    metrics: Metrics, *, alive: Callable[[], bool], ready: Callable[[], bool], port: int, address: str = ""
) -> RoutesServer:
    """Serves `/metrics`, `/healthz` and `/readyz`, once it is started; `port` 0 takes a free one. Raises OSError."""
    routes = {
        "/metrics": lambda: ServedPage(body=generate_latest(metrics.registry)),
        "/healthz": lambda: _health(alive()),
        "/readyz": lambda: _health(ready()),
    }
    return RoutesServer(routes, port=port, address=address)


def _health(good: bool) -> ServedPage:
    return ServedPage(body=b"ok\n") if good else ServedPage(body=b"no\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
