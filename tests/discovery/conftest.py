import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hvd_elastic.discovery.sidecar.sidecar import Sidecar
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.snapshot import SnapshotError, read_snapshot
from testbed.kube_api import JOBS, KubeApi, mpijob
from tests.discovery.workers import Workers


def until(condition: Callable[[], bool], seconds: float = 20.0) -> float:
    """Wait for the condition; return how long that took. The limit is for failures only."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, f"the condition did not hold within {seconds} s"
        time.sleep(0.005)
    return time.monotonic() - started


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    served.put(JOBS, mpijob())
    yield served
    served.stop()


@pytest.fixture(scope="session")
def all_workers() -> Iterator[Workers]:
    served = Workers()
    yield served
    served.stop()


@pytest.fixture
def workers(all_workers: Workers) -> Workers:
    said = (all_workers.lines, all_workers.reports, all_workers.answers)
    for state in (*said, all_workers.silent, all_workers.old, all_workers.closed, all_workers.received):
        state.clear()
    return all_workers


class Running:
    """A sidecar in a thread, and the list that its launcher would see."""

    def __init__(self, folder: Path, api: KubeApi, options: SidecarOptions) -> None:
        self.folder, self.metrics = folder, Metrics()
        self.sidecar = Sidecar(options, api.access(), self.metrics)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.sidecar.run()
        except BaseException as error:
            self.error = error

    def hosts(self) -> list[str] | None:
        with contextlib.suppress(SnapshotError):
            return [host.pod.rpartition("-")[2] for host in read_snapshot(self.folder).hosts]
        return None

    def shows(self, *indexes: int) -> float:
        return until(lambda: self.hosts() == [str(index) for index in indexes])

    def stop(self) -> None:
        self.sidecar.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()
        if self.error:
            raise self.error


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path, api: KubeApi, workers: Workers) -> Iterator[Start]:
    started: list[Running] = []

    def begin(**options: object) -> Running:
        given = {"job": "job", "namespace": "default", "run_dir": tmp_path, "max_workers": 3, "settle_seconds": 0.3,
                 "ready_port": workers.port, **options}  # fmt: skip
        started.append(Running(tmp_path, api, SidecarOptions(**given)))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for running in started:
        running.stop()
