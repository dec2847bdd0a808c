"""The sidecar as a process, whose wall clock NTP sets on by an hour and then back by two."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.discovery.ledger.bounded_ledger import BoundedLedger
from hvd_elastic.discovery.ledger.entries import WorldChanged
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.discovery.snapshot import SnapshotError, read_snapshot
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS, LEDGER_KEY, WorkerState
from testbed.kube_api import CONFIG_MAPS, EVENTS, JOBS, NODES, PODS, KubeApi, mpijob, node, pod
from testbed.local.stepped_clock import SteppedClock
from tests.discovery.conftest import until
from tests.discovery.sidecar.record.test_job_recorder import launcher
from tests.discovery.workers import Workers


class Watched:
    """The sidecar's process, and the workers of its job, whose clocks are set with its own."""

    def __init__(self, folder: Path, api: KubeApi, workers: Workers) -> None:
        self.folder, self.api, self.workers = folder, api, workers
        self.clock, self.seconds, self.step = SteppedClock(folder), 0, 0
        self.pauses: list[dict[str, object]] = []
        settings = {
            "job": "job",
            "namespace": "default",
            "min-workers": 1,
            "max-workers": 3,
            "settle": 0.3,
            "ready-port": workers.port,
            "run-dir": folder / "run",
            "pod-uid": "l1",
            "metrics-port": 0,
        }
        command = [argument for name, value in settings.items() for argument in (f"--{name}", str(value))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hvd_elastic.cli", "discovery-sidecar", "--kubeconfig", *command],
            env={**os.environ, **self.clock.environment, "KUBECONFIG": str(api.kubeconfig(folder))},
        )

    def set_on(self, seconds: int) -> None:
        self.seconds = seconds
        self.clock.set_on(seconds)

    def trains(self, *indexes: int, pause_seconds: float | None = None) -> None:
        """These train from now on; `pause_seconds`: after a pause."""
        if pause_seconds is not None:
            unix = time.time() + self.seconds
            self.pauses.append({"unix": unix, "seconds": pause_seconds, "to": len(indexes), "step": self.step})
        for index in range(3):
            if index in indexes:
                self.workers.say(f"127.0.1.{index + 1}", state=WorkerState.TRAINING)
                self.api.put(PODS, pod(index))
            else:
                self.api.remove(PODS, f"job-worker-{index}")
        until(lambda: self._shows(*indexes), 60.0)

    def _shows(self, *indexes: int) -> bool:
        """Whether launcher, ledger and MPIJob have this world. The workers make another step meanwhile."""
        assert self.process.poll() is None
        self.step += 1
        now = time.time() + self.seconds
        figures = {"unix": now, "step": self.step, "size": len(indexes), "began": 1.0, "pauses": self.pauses}
        self.workers.report("127.0.1.1", unix=now, figures=figures)
        status = LiveStatus.from_json(
            self.api.objects[JOBS]["job"]["metadata"]["annotations"].get(ANNOTATION_STATUS, "")
        )
        assert status is None or status.activity is not Activity.STALLED
        try:
            listed = {int(host.pod.rpartition("-")[2]) for host in read_snapshot(self.folder / "run").hosts}
        except SnapshotError:
            assert not self.worlds, "the list of hosts is never too old"
            return False
        worlds, told = self.worlds, 0 if status is None else status.workers
        return listed == set(indexes) and bool(worlds) and len(worlds[-1].workers) == told == len(indexes)

    @property
    def worlds(self) -> list[WorldChanged]:
        text = self.api.objects[CONFIG_MAPS]["job-ledger"].get("data", {}).get(LEDGER_KEY, "")
        return [entry for entry in BoundedLedger.from_text(text).entries if isinstance(entry, WorldChanged)]


@pytest.fixture
def watched(tmp_path: Path, api: KubeApi, workers: Workers) -> Iterator[Watched]:
    api.put(CONFIG_MAPS, {"metadata": {"name": "job-ledger"}})
    api.put(NODES, node("node-a"))
    api.put(PODS, launcher("l1"))
    job = mpijob()
    job["spec"]["runPolicy"] = {"managedBy": "example.com/nobody"}  # no operator, that the status would wait for
    api.put(JOBS, job)
    made = Watched(tmp_path, api, workers)
    yield made
    made.process.terminate()
    made.process.wait(20)


@pytest.mark.process
def test_each_resize_is_told_with_its_pause_and_nothing_is_a_stall(watched: Watched) -> None:
    watched.trains(0, 1)
    watched.trains(0, 1, 2, pause_seconds=1.0)
    watched.set_on(3600)
    watched.trains(0, 1, pause_seconds=2.0)
    watched.set_on(-3600)
    watched.trains(0, pause_seconds=3.0)
    watched.set_on(0)
    watched.trains(0, 2, pause_seconds=4.0)
    assert [entry.pause_seconds for entry in watched.worlds] == [None, 1.0, 2.0, 3.0, 4.0]
    reasons = {event["reason"] for event in watched.api.objects[EVENTS].values()}
    assert not {"Stalled", "WorkerStuckTerminating"} & reasons
