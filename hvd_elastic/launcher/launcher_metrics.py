"""Prometheus metrics and the status over HTTP. Imported only where a port is asked for: it needs prometheus_client."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from hvd_elastic.launcher.core.resize_causes import CauseKind
from hvd_elastic.launcher.status_report import PAUSE_BUCKETS_SECONDS, StatusReport
from hvd_elastic.system.http_server import RoutesServer, ServedPage

_PREFIX: Final = "hvd_elastic_launcher"


class StatusCollector(Collector):
    """Reads the report at each scrape."""

    def __init__(self, report: StatusReport) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        status = self._report.status
        yield _gauge("world_size", "Processes of the current world.", status.world_size)
        yield _gauge("wanted_size", "Processes that the hosts would allow.", status.wanted_size)
        yield _gauge("generation", "Number of the current world.", status.generation)
        yield _gauge("blacklisted_hosts", "Hosts left out after a death.", len(status.blacklisted))
        yield _counter("resets_total", "Worlds after the first one.", status.resets)
        yield _counter("restarts_total", "Processes started after the first world.", status.restarted_processes)
        yield self._resizes()
        yield self._pauses()

    def _resizes(self) -> Metric:
        resizes = CounterMetricFamily(f"{_PREFIX}_resizes_total", "Changes of the world by cause.", labels=["cause"])
        for kind in CauseKind:  # a series that begins with its first increase would hide it from increase()
            resizes.add_metric([kind.value], self._report.resizes_by_cause[kind])
        return resizes

    def _pauses(self) -> Metric:
        pauses = self._report.pauses
        known = zip(PAUSE_BUCKETS_SECONDS, pauses.up_to, strict=True)
        buckets = [(f"{bound:g}", float(number)) for bound, number in known]
        return HistogramMetricFamily(
            f"{_PREFIX}_pause_seconds",
            "From the first notification or death until all members of a new world have arrived.",
            buckets=[*buckets, ("+Inf", float(pauses.count))],
            sum_value=pauses.seconds,
        )


def status_registry(report: StatusReport) -> CollectorRegistry:
    """A registry of its own, with nothing in it but the report's metrics."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(report))
    return registry


def metrics_server(report: StatusReport, port: int) -> RoutesServer:
    """Serves `/metrics` and `/status` on all interfaces, once it is started. Raises OSError, OverflowError.

    Args:
        report: what is served.
        port: 0 takes any free port.

    """
    registry = status_registry(report)
    routes = {
        "/metrics": lambda: ServedPage(body=generate_latest(registry)),
        "/status": lambda: ServedPage(body=report.text.encode(), content_type="application/json"),
    }
    return RoutesServer(routes, port=port)


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", documentation, value=value)


def _counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}_{name}", documentation, value=value)
