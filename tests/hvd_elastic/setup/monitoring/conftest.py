"""A job's real exporters, as a Prometheus scrapes them, and beside them what other people's exporters serve."""

import itertools
import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from hvd_elastic.discovery.sidecar.sidecar_metrics import health_server
from hvd_elastic.launcher.core.actions import WorldResized
from hvd_elastic.launcher.core.resize_causes import CauseKind, ResizeCause
from hvd_elastic.launcher.launcher_metrics import metrics_server
from hvd_elastic.launcher.status_report import StatusReport
from hvd_elastic.mpijob.contract import (
    ENV_METRICS,
    ENV_READY_ADDRESS,
    ENV_RUN_DIR,
    WORKER_METRICS_PORT,
)
from hvd_elastic.trainer.checkpoint import Checkpoints, open_checkpoints
from hvd_elastic.trainer.telemetry import events, figures_file
from hvd_elastic.trainer.telemetry.metrics_server import MetricsServer
from testbed.debian_programs import debian_program
from testbed.kube_api import PODS, KubeApi, pod
from tests.discovery.conftest import Start, all_workers, api, start, workers
from tests.discovery.sidecar.launcher.test_launcher_job import BATCH, launcher
from tests.hvd_elastic.worker.pods import eventually
from tests.trainer.telemetry.test_metrics_server import scrape
from tests.trainer.telemetry.test_worker_metrics import nvml

__all__ = ["all_workers", "api", "start", "workers"]

OTHERS = """\
# From kube-state-metrics, in the form of its docs/metrics/workload/pod-metrics.md, for one pod that waits.
kube_pod_info{namespace="serving",pod="chat-1",uid="u1",priority_class="inference-pc",node=""} 1
kube_pod_status_unschedulable{namespace="serving",pod="chat-1",uid="u1"} 1
# From DCGM's exporter, in the form of its internal/pkg/rendermetrics, of a GPU that NVML does not tell of. Scraped
# without honorLabels, as by default, its pod is `exported_pod`.
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-dcgm",exported_namespace="ml",exported_pod="bert-worker-0"} 91
DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0",UUID="GPU-dcgm",exported_namespace="ml",exported_pod="bert-worker-0"} 40
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-dcgm",exported_namespace="ml",exported_pod="bert-worker-0"} 1024
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-dcgm",exported_namespace="ml",exported_pod="bert-worker-0"} 3072
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-dcgm",exported_namespace="ml",exported_pod="bert-worker-0"} 66
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-dcgm",exported_namespace="ml",exported_pod="bert-worker-0"} 250
"""
"""What Prometheus gets of programs that need a cluster or a GPU."""


_numbers = itertools.count(200)
"""Of addresses: a training process's port is fixed, and stays taken until this process ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """One target of Prometheus."""

    pod: str
    address: str
    """HOST:PORT."""


class Job:
    """A job's launcher, sidecar and one training process, in this process, with their real servers of metrics."""

    def __init__(self, report: StatusReport, checkpoints: Checkpoints, exporters: tuple[Exporter, ...]) -> None:
        self.exporters = exporters
        self._report, self._checkpoints = report, checkpoints
        self._step = 0

    def train(self) -> None:
        """One step, its checkpoint, a pause, and a resize: every counter grows."""
        self._step += 1
        world = {"rank": 0, "size": 4, "step": self._step}
        events.emit(events.Kind.STEP, **world, epoch=0, samples=64 * self._step, seconds=0.1, loss=1 / self._step)
        for cause in events.PauseCause:
            events.emit(events.Kind.RESET, **world, cause=cause.value, seconds=0.2)
        causes = tuple(ResizeCause(kind=kind, host="b") for kind in CauseKind)
        resize = WorldResized(generation=self._step, before=3, after=4, causes=causes, pause_seconds=0.2)
        self._report.resized(resize, float(self._step))
        self._checkpoints.save({"weight": torch.zeros(10)}, step=self._step, world_size=4, reason="interval")
        assert self._checkpoints.flush(30)

    def texts(self) -> list[str]:
        """What each exporter serves."""
        asked = (f"http://{one.address}/metrics" for one in self.exporters)
        return [urllib.request.urlopen(url, timeout=10).read().decode() for url in asked]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: KubeApi, start: Start) -> Iterator[Job]:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    api.objects[BATCH] = {}
    api.put(BATCH, {"metadata": {"name": "job-launcher", "uid": "job-uid"}, "spec": {"backoffLimit": 3}, "status": {}})
    api.put(PODS, launcher("now"))
    api.put(PODS, pod(0))
    api.put(PODS, pod(1, ready=False))
    sidecar = start(pod_uid="now")
    sidecar.shows(0)
    failures = "hvd_elastic_discovery_launcher_failures"
    eventually(lambda: sidecar.metrics.registry.get_sample_value(failures) is not None, "a look at the launcher's Job")
    health = health_server(sidecar.metrics, alive=lambda: True, ready=lambda: True, port=0, address="127.0.0.1")
    health.start()
    report = StatusReport(tmp_path)
    launchers = metrics_server(report, 0)
    launchers.start()
    before = tuple(events._listeners)
    address = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 200}.{next(_numbers)}"
    MetricsServer().start(0, environ={ENV_METRICS: "1", ENV_READY_ADDRESS: address})
    figures_file.start(str, lambda _line: None)
    checkpoints = open_checkpoints(f"file://{tmp_path}/tier", job="bert", incarnation="one")
    eventually(lambda: scrape(address), "the worker's port")
    yield Job(
        report,
        checkpoints,
        (
            Exporter(pod="bert-launcher-x", address=f"127.0.0.1:{launchers.port}"),
            Exporter(pod="bert-launcher-x", address=f"127.0.0.1:{health.port}"),
            Exporter(pod="bert-worker-0", address=f"{address}:{WORKER_METRICS_PORT}"),
        ),
    )
    checkpoints.close()
    for listener in set(events._listeners) - set(before):
        events.unsubscribe(listener)
    launchers.stop()
    health.stop()


@pytest.fixture
def others() -> Iterator[Exporter]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(OTHERS.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Scrapes are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Exporter(pod="", address=f"127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def promtool() -> Path:
    return debian_program("promtool", "prometheus", "promtool")
