"""Sixty days with a preemption each ten minutes, through the sidecar's record into what people ask of it.

The recorder, the ledger, the certificate and the verbs are the real ones, over real HTTP; the clock is given.
"""

import gc
import itertools
import json
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.report.bill import bill
from hvd_elastic.client.report.job_list import list_job_states
from hvd_elastic.client.report.job_state import JobState
from hvd_elastic.client.report.job_status import status
from hvd_elastic.client.report.prices import read_prices
from hvd_elastic.client.report.story import story
from hvd_elastic.client.watch.job_screen import worker_rows
from hvd_elastic.client.watch.plain_watch import job_lines
from hvd_elastic.client.watch.screen_state import Screen, ScreenState
from hvd_elastic.client.watch.watched_job import WatchedJobReader
from hvd_elastic.discovery.kube.api_server import ApiServer
from hvd_elastic.discovery.kube.watch import Changed, Deleted, Listed, Message
from hvd_elastic.discovery.ledger.bounded_ledger import MAX_BYTES, BoundedLedger
from hvd_elastic.discovery.ledger.entries import Entry, WorldChanged
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.discovery.ledger.training_figures import ResizePause, TrainingFigures
from hvd_elastic.discovery.rules.cluster_views import JobView, NodeView, PodView, WorkerView
from hvd_elastic.discovery.sidecar.inbox import WatchBatch, WorkerAnswers
from hvd_elastic.discovery.sidecar.record import job_recorder
from hvd_elastic.discovery.sidecar.record.job_recorder import JobRecorder
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.workers.worker_report import WorkerReport
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS, LEDGER_KEY, WorkerState
from hvd_elastic.trainer.data.certified_pass import CertifiedPass
from hvd_elastic.trainer.data.sample_certificate import Certificate, examine
from testbed.kube_api import CONFIG_MAPS, EVENTS, JOBS, NODES, PODS, KubeApi, node, pod
from tests.hvd_elastic.client.report.objects import condition, launcher, mpijob, stamp

DAYS: Final = 60
LAUNCHES: Final = (0, 15)
"""The days that begin with another launcher: the second one's sidecar has 45 days in which something could grow."""
PREEMPTIONS_A_DAY: Final = 144
GAP_SECONDS: Final = 600.0
WORKERS: Final = 8
GPUS: Final = 4
GONE_SECONDS: Final = 2.0
"""From a preemption until the worker is known to be gone."""
LENT_SECONDS: Final = 240.0
"""From then to the binding of the one in its place."""
MOST_HAPPENINGS: Final = 4000
MOST_STATUS_BYTES: Final = 2000
MOST_CERTIFICATE_BYTES: Final = 2000
LAUNCH_SECONDS: Final = 30.0
EVENTS_KEPT: Final = 60
"""A cluster forgets its Events after an hour."""
OWNER: Final = "uid-train"


def job() -> dict[str, Any]:
    container = {"name": "worker", "resources": {"limits": {"nvidia.com/gpu": str(GPUS)}}}
    made = mpijob(replicas=WORKERS, conditions=[condition("Running")])
    made["spec"]["mpiReplicaSpecs"]["Worker"]["template"] = {"spec": {"containers": [container]}}
    return made


class SixtyDays:
    """A cluster with one job, and the sidecar's record of it."""

    def __init__(self, api: KubeApi, folder: Path, began: float) -> None:
        self.api, self.began, self.seconds = api, began, 0.0
        self.options = SidecarOptions(
            job="train", namespace="default", run_dir=folder, min_workers=1, max_workers=WORKERS, pod_uid=""
        )
        self.requests: Counter[str] = Counter()
        """All so far, by method."""
        self.launchers = self.preemptions = 0
        self.step_of_clocks = 0.0
        """Seconds by which the nodes' clocks, not the API server's, have been set on."""
        self.pauses: list[ResizePause] = []
        self.most_ledger_bytes = 0
        self.blocks: list[int] = []
        """How many objects there were in memory at the end of each day."""
        self.doing: set[Activity] = set()
        """All that the MPIJob has told since the first world."""
        self.certificate = Certificate()
        self.samples = ""
        self.pods: dict[str, dict[str, Any]] = {}
        self.order: list[str] = []
        """Names of the workers that train, rank 0's first."""
        self.numbers = itertools.count()
        api.objects[JOBS]["train"] = job()
        api.objects[JOBS]["train"]["metadata"]["creationTimestamp"] = stamp(began)
        api.objects[CONFIG_MAPS]["train-ledger"] = {"metadata": {"name": "train-ledger", "resourceVersion": "1"}}
        machine = node("node-a", labels={"node.kubernetes.io/instance-type": "g5.xlarge"})
        api.objects[NODES]["node-a"] = machine
        self.node = NodeView.from_json(machine)
        for index in range(WORKERS):
            self._bind(f"train-worker-{index}")
        self.order = list(self.pods)

    @property
    def now(self) -> float:
        return self.began + self.seconds

    @property
    def step(self) -> int:
        """One a second."""
        return int(self.seconds)

    @property
    def ledger_text(self) -> str:
        return str(self.api.objects[CONFIG_MAPS]["train-ledger"].get("data", {}).get(LEDGER_KEY, ""))

    @property
    def entries(self) -> tuple[Entry, ...]:
        return BoundedLedger.from_text(self.ledger_text).entries

    @property
    def status_text(self) -> str:
        return str(self.api.objects[JOBS]["train"]["metadata"]["annotations"].get(ANNOTATION_STATUS, ""))

    def turn(self, after: float) -> None:
        """Let time pass, and the recorder do what is due."""
        self.seconds += after
        self.recorder.turn()
        self.requests.update(request.method for request in self.api.requests)
        self.api.requests.clear()
        self.api.history.clear()
        self.most_ledger_bytes = max(self.most_ledger_bytes, len(self.ledger_text))
        if (told := LiveStatus.from_json(self.status_text)) and told.workers:
            self.doing.add(told.activity)
        kept = self.api.objects[EVENTS]
        for name in list(kept)[:-EVENTS_KEPT]:
            del kept[name]

    def end_day(self) -> None:
        self.samples = examine(self.certificate).words
        gc.collect()
        self.blocks.append(sys.getallocatedblocks())

    def live_until(self, unix: float) -> None:
        """A moment without a preemption."""
        self.turn(unix - self.now - 5.0)
        self.turn(5.0)

    def launch(self) -> None:
        """A launcher takes over from the one before, if there was one, and its sidecar goes on with the record."""
        self.launchers += 1
        self.pauses = []
        uid = f"launcher-{self.launchers}"
        own = launcher(f"train-{uid}", uid=uid)
        for name in [name for name in self.api.objects[PODS] if "launcher" in name]:
            del self.api.objects[PODS][name]
        self.api.objects[PODS][own["metadata"]["name"]] = own
        self.recorder = JobRecorder(
            replace(self.options, pod_uid=uid),
            ApiServer(self.api.access()),
            ask=self._ask,
            wall=lambda: self.now + self.step_of_clocks,
            clock=lambda: self.seconds,
        )
        views = tuple(map(PodView.from_json, self.pods.values()))
        self._hear("nodes", Listed((self.node,)))
        self._hear("job", Listed((JobView.from_json(self.api.objects[JOBS]["train"]),)))
        self._hear("pods", Listed(views))
        self._answer(dict.fromkeys(self.pods, WorkerState.TRAINING))
        for _ in range(2):
            self.turn(LAUNCH_SECONDS / 3)
        self.seconds += LAUNCH_SECONDS / 3

    def _hear(self, resource: str, message: Message[Any]) -> None:
        self.recorder.take(WatchBatch(resource, [message], self.seconds))

    def _answer(self, states: dict[str, WorkerState]) -> None:
        uids = {name: self.pods[name]["metadata"]["uid"] for name in states}
        views = {uids[name]: WorkerView(state=state) for name, state in states.items()}
        self.recorder.take(WorkerAnswers(views, self.seconds))

    def _ask(self, address: str) -> WorkerReport:
        first = self.pods[self.order[0]]
        if address != first["status"]["podIP"]:
            return WorkerReport()
        return WorkerReport(
            figures=TrainingFigures(
                unix=self.now + self.step_of_clocks,
                age=0.0,
                step=self.step,
                size=len(self.order),
                steps_per_second=1.0,
                loss=0.5,
                samples=self.samples,
                pauses=tuple(self.pauses),
            )
        )

    def _bind(self, name: str) -> None:
        index = int(name.rpartition("-")[2])
        uid = f"uid-{next(self.numbers)}"
        bound = pod(index, job="train", uid=uid, owner=OWNER, since=stamp(self.now))
        self.pods[name] = self.api.objects[PODS][name] = bound

    def _pause(self, seconds: float) -> None:
        unix, size = self.now + self.step_of_clocks, len(self.order)
        pause = ResizePause(unix=unix, seconds=seconds, from_size=0, to_size=size, step=self.step, repeated=1)
        self.pauses = [*self.pauses[-7:], pause]

    def preempt(self) -> None:
        """A worker goes, the others train on, and four minutes later another one comes in its place."""
        victim = self.order[self.preemptions % WORKERS]
        gone = self.pods[victim]
        uid = gone["metadata"]["uid"]
        self.preemptions += 1
        self.api.create(EVENTS, {
            "metadata": {"generateName": f"{victim}."},
            "involvedObject": {"kind": "Pod", "name": victim, "uid": uid},
            "related": {"kind": "Pod", "namespace": "inference", "name": "web-1", "uid": "web-uid"},
            "reason": "Preempted",
            "message": "Preempted by pod web-uid on node node-a",
            "firstTimestamp": stamp(self.now),
            "lastTimestamp": stamp(self.now),
        })  # fmt: skip
        disrupted = PodView.from_json(
            pod(0, job="train", uid=uid, owner=OWNER, disrupted="PreemptionByScheduler", since=stamp(self.now))
        )
        leaving = replace(PodView.from_json(gone), disruption=disrupted.disruption)
        self._hear("pods", Changed(leaving))
        self._answer({victim: WorkerState.LEAVING})
        self._hear("pods", Deleted(leaving))
        del self.pods[victim], self.api.objects[PODS][victim]
        self.order.remove(victim)
        self._pause(2.0)
        self.turn(GONE_SECONDS)

        self.seconds += LENT_SECONDS
        self._bind(victim)
        self._hear("pods", Changed(PodView.from_json(self.pods[victim])))
        self._answer({victim: WorkerState.TRAINING})
        self.order.append(victim)
        self._end_epoch()
        self._pause(3.0)
        self.turn(1.0)
        self.seconds += GAP_SECONDS - GONE_SECONDS - LENT_SECONDS - 1.0

    def _end_epoch(self) -> None:
        """Another epoch, of which some samples are left out where they fill no batch for each worker; and a commit."""
        epoch, told = self.preemptions, 48 + self.preemptions % 2 * 3
        done = CertifiedPass(
            name="train", first=epoch, last=epoch, length=51, seed=epoch, shuffle=True, position=told, told=told
        )
        self.certificate.passes.append(done)
        self.certificate.add(done.sum_of(0, told))
        self.certificate.put_together(epoch + 1)
        self.certificate = Certificate.from_state_dict(self.certificate.state_dict())


@pytest.fixture
def lived(served: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SixtyDays:
    """None of them is over yet."""
    monkeypatch.setattr(job_recorder, "TURN_SECONDS", 0.0)
    served.objects[NODES] = {}
    return SixtyDays(served, tmp_path, float(int(time.time() - DAYS * 86400 - len(LAUNCHES) * LAUNCH_SECONDS)))


@pytest.mark.process
@pytest.mark.timeout(1800)
def test_sixty_days_of_preemptions_are_told_whole_and_take_the_room_of_a_few(
    lived: SixtyDays, cluster: ClusterClient
) -> None:
    for day in range(DAYS):
        if day in LAUNCHES:
            lived.launch()
        for _ in range(PREEMPTIONS_A_DAY):
            lived.preempt()
        lived.end_day()
    lived.live_until(time.time())
    preemptions = DAYS * PREEMPTIONS_A_DAY

    known = status(cluster, "train")
    assert (known.state, known.size, len(known.workers)) == (JobState.TRAINING, WORKERS, WORKERS)
    assert (known.preemptions, known.resizes) == (preemptions, 2 * preemptions + len(LAUNCHES) - 1)
    assert (known.pause_seconds, known.repeated_steps) == (5.0 * preemptions, 2 * preemptions)
    assert known.counts_since is None
    held = GPUS * (WORKERS * lived.seconds - preemptions * LENT_SECONDS)
    (listed,), billed = list_job_states(cluster, "default"), bill(cluster, "train", read_prices(None))
    assert billed is not None
    for sums in (listed, billed):
        assert (sums.preemptions, sums.lent_gpu_seconds) == (preemptions, GPUS * preemptions * LENT_SECONDS)
        assert sums.gpu_seconds == pytest.approx(held, rel=1e-4)
        assert sums.training_seconds == pytest.approx(lived.seconds, rel=1e-4)
    view = WatchedJobReader(cluster, "train", "default").read()
    assert len(list(worker_rows(view, ScreenState(screen=Screen.JOB, has_list=False)))) == WORKERS
    assert len(list(job_lines(iter([view])))) == 1
    finding = examine(lived.certificate)
    assert finding.holds
    assert known.samples == lived.samples

    assert lived.most_ledger_bytes <= MAX_BYTES
    assert len(story(cluster, "train")) <= MOST_HAPPENINGS
    assert len(lived.status_text) <= MOST_STATUS_BYTES
    assert len(json.dumps(lived.certificate.state_dict())) <= MOST_CERTIFICATE_BYTES
    assert lived.requests["PATCH"] <= 4 * preemptions, "for each: the ledger at two turns, and two statuses"
    assert lived.requests["POST"] <= 2 * preemptions + DAYS, "Events: one for each resize"
    assert lived.requests["GET"] <= 2 * preemptions + DAYS, "who preempted, and whether the ledger is there"
    # Twelve days have each length of a ledger once.
    grown = min(lived.blocks[-12:]) - min(lived.blocks[18:30])
    assert grown < 30 * PREEMPTIONS_A_DAY / 2, "not an object for each second preemption"


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_step_of_the_nodes_clocks_costs_no_resize_and_is_no_stall(lived: SixtyDays, seconds: float) -> None:
    """All clocks but the API server's, as NTP sets them right: by an hour at once."""
    lived.launch()
    for step in (0.0, seconds, 0.0):
        lived.step_of_clocks = step
        for _ in range(3):
            lived.preempt()
    lived.live_until(lived.now + 60.0)
    assert lived.doing == {Activity.TRAINING}
    worlds = [entry for entry in lived.entries if isinstance(entry, WorldChanged)]
    assert [entry.pause_seconds for entry in worlds] == [None, *[2.0, 3.0] * 9]
    events = [event["reason"] for event in lived.api.objects[EVENTS].values()]
    assert not {"Stalled", "LedgerLost"} & set(events)
