"""A job whose workers run on nodes of kwok, from its submission to its deletion, as the operator handles it.

Its launcher's pod finds no node. Its sidecar is a process of this machine, under the account and with the rights of the
generated one, and starts when the launcher's pod is made. The pods of kwok have addresses of this machine, on which a
thread answers the reach test, as the entry points of workers would.
"""

import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.mpi_operator import control_plane
from benchmarks.mpi_operator.measured_scale import Change, MeasuredChange, MeasuredScale, Moment, Pace, sync_times
from benchmarks.sidecar.sidecar_process import answer, names, sidecar_process
from hvd_elastic.mpijob.contract import LABEL_JOB_ROLE, Role
from testbed.cluster import jobs
from testbed.cluster.pod_lives import PodLife
from testbed.cluster.pod_watch import PodWatch
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.kube import addons, kwok, waiting
from testbed.kube.errors import DeadlineError
from testbed.kube.kubectl import Kubectl
from testbed.kube.ledger import Ledger

ADDRESSES: Final = "198.18.0.0/15"
"""Of the pods: a range for measurements, which no network routes (RFC 2544)."""
LEASE_SECONDS: Final = 120
"""So that hundreds of nodes do not spend the machine on their leases."""
NAME: Final = "scale"
POLL_SECONDS: Final = 0.1
CONFIGMAP_SECONDS: Final = 0.5
"""Between looks at the ConfigMap, which is large."""


def measure(site: Site, workers: int, pace: Pace) -> MeasuredScale:
    """Take a job of so many workers through its life, under an operator of that pace."""
    found = MeasuredScale(workers=workers, pace=pace)
    with ExitStack() as stack:
        stack.enter_context(operator_pace(site, pace))
        stack.enter_context(nodes(site, -(-workers // kwok.GPUS)))
        kubectl = make_namespace(site, f"bench-scale-{workers}")
        stack.callback(remove_namespace, site, kubectl.namespace)
        job = ScaledJob(site=site, kubectl=kubectl, workers=workers, found=found, stack=stack)
        try:
            job.live()
        except DeadlineError as error:
            found.broken = str(error).splitlines()[0]
        found.load = os.getloadavg()[0]
    return found


@contextmanager
def operator_pace(site: Site, pace: Pace, *, program: Path | None = None) -> Iterator[None]:
    """A fresh operator of that pace. `program`: another one than the cluster's."""
    operator = site.local().daemon(control_plane.OPERATOR)
    try:
        with operator.with_arguments(*pace.flags(), program=program):
            wait_leading(site)
            yield
    finally:
        wait_leading(site)


def wait_leading(site: Site) -> None:
    """Wait until the operator that runs now takes jobs up. The lease of the one before it would hold it up."""
    operators = site.kubectl.within("mpi-operator")
    operators("delete", "leases", "--all")
    addons.wait_mpi_operator(operators)


@contextmanager
def nodes(site: Site, count: int) -> Iterator[None]:
    """So many nodes of kwok, whose pods' addresses are this machine's."""
    machine = site.local()
    route = ("local", ADDRESSES, "dev", "lo")
    Ledger(state=machine.plane.state).note("route", *route)
    subprocess.run(["ip", "route", "replace", *route], check=True)
    try:
        kwok.start(machine.plane, site.kubectl, nodes=count, lease_seconds=LEASE_SECONDS, addresses=ADDRESSES)
        yield
    finally:
        kwok.stop(machine.plane, site.kubectl)
        subprocess.run(["ip", "route", "delete", *route], check=False)


@dataclass(slots=True, kw_only=True)
class ScaledJob:
    """The job, and what is found of it."""

    site: Site
    kubectl: Kubectl
    workers: int
    found: MeasuredScale
    stack: ExitStack
    keeps_record: bool = True
    """Whether its sidecar writes a ledger and the live status."""
    metrics_port: int = 0
    """Of this machine, on which the sidecar serves its metrics; 0: nowhere."""
    watch: PodWatch = field(init=False)
    others: dict[str, int] = field(default_factory=dict)
    """Processes whose cost counts beside the cluster's: the sidecar, once it runs."""
    folder: Path = field(init=False)
    """The sidecar's run folder."""

    def live(self) -> None:
        """From its submission to its deletion. Raises DeadlineError where it stands still."""
        self.start()
        rest, half = self.workers - 1, self.workers // 2
        for change, count in (
            (Change.ONE_LEAVES, rest),
            (Change.ONE_BACK, self.workers),
            (Change.HALF_LEAVE, half),
            (Change.HALF_BACK, self.workers),
        ):
            self._change(change, count, partial(self.scale, count))
        self._change(Change.DELETED, 0, lambda: self.kubectl("delete", "mpijob", NAME, "--wait=false"))

    def start(self) -> None:
        """Until all workers are there. Raises DeadlineError."""
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.watch = self.stack.enter_context(PodWatch(self.kubectl, selector=f"{LABEL_JOB_ROLE}={Role.WORKER}"))
        log = self.site.local().daemon(control_plane.OPERATOR).log
        before = log.stat().st_size

        def submit() -> None:
            self.kubectl.apply(self._manifests())
            self._until("the launcher's pod is made", lambda: bool(self._launcher()))
            self._start_sidecar()

        self._change(Change.START, self.workers, submit)
        times = sync_times(log.read_bytes()[before:].decode(errors="replace").splitlines())
        self.found.syncs, self.found.sync_seconds = len(times), sum(times)
        self.found.mib = control_plane.resident_mib(self.site.local(), self.others)
        self.found.configmap_bytes = sum(map(len, self._configmap().values()))

    def _manifests(self) -> str:
        description = jobs.describe(
            self.site,
            self.kubectl,
            NAME,
            jobs.PACED,
            workers=jobs.workers((1, self.workers, self.workers)),
            node_labels=kwok.LABELS,
            tolerations=[kwok.TAINT],
            launcher_node_labels={"kubernetes.io/hostname": "none"},
        )
        manifests = jobs.generate(description)
        (self.folder / "account").write_text(
            next(item["metadata"]["name"] for item in yaml.safe_load_all(manifests) if item["kind"] == "ServiceAccount")
        )
        return manifests

    def _launcher(self) -> list[dict[str, Any]]:
        return self.kubectl.list("pods", selector=f"{LABEL_JOB_ROLE}={Role.LAUNCHER}")

    def _start_sidecar(self) -> None:
        """As the launcher's pod would."""
        plane = self.site.local().plane
        account = (self.folder / "account").read_text()
        (self.folder / "token").write_text(self.kubectl("create", "token", account, "--duration=2h").strip())
        (self.folder / "ca.crt").write_bytes((plane.keys / "ca.crt").read_bytes())
        options = {
            "job": NAME,
            "namespace": self.kubectl.namespace,
            "max_workers": self.workers,
            "nodes": False,
            "pod_uid": self._launcher()[0]["metadata"]["uid"] if self.keeps_record else "",
            "ready_port": self._listen(),
        }
        process = sidecar_process(
            self.folder, plane.subnets.gateway, plane.api_port, options, metrics_port=self.metrics_port
        )
        self.others[control_plane.SIDECAR] = self.stack.enter_context(process).pid

    def _listen(self) -> int:
        """Answer the reach test for all workers; returns the port."""
        listener = self.stack.enter_context(socket.create_server(("0.0.0.0", 0), backlog=1024))
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        return int(listener.getsockname()[1])

    def scale(self, count: int) -> None:
        """Ask for so many workers, as nobody should who has a job that trains: they are not drained."""
        self.kubectl.patch("mpijob", NAME, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": count}}}})

    def _change(self, change: Change, count: int, begin: Callable[[], object]) -> None:
        """Begin a change, and wait until the operator and discovery have brought the job to so many workers."""
        machine = self.site.local()
        before, began = control_plane.cpu_seconds(machine, self.others), time.time()
        begin()
        seconds = {} if change == Change.DELETED else self._lists(count, began)
        self._until(f"{count} workers run", lambda: self.settled(count))
        after = control_plane.cpu_seconds(machine, self.others)
        cpu = {process: spent - before.get(process, 0.0) for process, spent in after.items()}
        lives = self.watch.lives()
        self.found.changes[change] = MeasuredChange(seconds={**pod_moments(lives, began), **seconds}, cpu=cpu)
        print(f"  {time.strftime('%H:%M:%S')} {change}: {self.found.changes[change]}", flush=True)

    def _lists(self, count: int, began: float) -> dict[str, float]:
        """When the ConfigMap and discovery's list have so many workers, as seconds."""
        looked = 0.0

        def listed() -> bool:
            nonlocal looked
            if not self.settled(count) or time.time() - looked < CONFIGMAP_SECONDS:
                return False
            looked = time.time()
            return self._configmap().get("discover_hosts.sh", "").count("echo ") == count

        probes: dict[str, Callable[[], bool]] = {
            Moment.LISTED: listed,
            Moment.OFFERED: lambda: len(names(self.folder)) == count,
        }
        return moments(probes, began, within_seconds=self._patience, seen=self._seen)

    def _configmap(self) -> Mapping[str, str]:
        found = self.kubectl.find("configmap", f"{NAME}-config")
        return found["data"] if found else {}

    def settled(self, count: int) -> bool:
        """Whether exactly so many workers are there, and run."""
        pods = self.watch.pods()
        return len(pods) == count and all(pod.phase == "Running" and not pod.leaving for pod in pods)

    @property
    def _patience(self) -> float:
        """Seconds for a change. Kubernetes' controllers delete 20 objects a second; each pod is news three times."""
        pace = self.found.pace
        return 60 + self.workers * (1.5 / min(20, pace.requests) + 4 / pace.events)

    def _until(self, what: str, probe: Callable[[], bool]) -> None:
        waiting.until(what, probe, within_seconds=self._patience, every_seconds=POLL_SECONDS, seen=self._seen)

    def _seen(self) -> str:
        pods = self.watch.pods()
        return json.dumps({"pods": len(pods), "running": sum(pod.phase == "Running" for pod in pods)})


def pod_moments(lives: list[PodLife], began: float) -> dict[str, float]:
    """When the last pod that was made, or told to end, since a change began was how far, as seconds from there."""
    made = [life for life in lives if life.created >= began]
    told = [life for life in lives if (life.told or 0.0) >= began]
    times: dict[str, list[float | None]] = {
        Moment.CREATED: [life.created for life in made],
        Moment.BOUND: [life.bound for life in made],
        Moment.RUNNING: [life.running for life in made],
        Moment.GONE: [life.gone for life in told],
    }
    last = {name: [moment for moment in found if moment is not None] for name, found in times.items()}
    return {name: max(found) - began for name, found in last.items() if found}


def moments(
    probes: Mapping[str, Callable[[], bool]], began: float, *, within_seconds: float, seen: Callable[[], str]
) -> dict[str, float]:
    """When each probe was first true, as seconds since `began`. Raises DeadlineError."""
    reached: dict[str, float] = {}

    def all_reached() -> bool:
        for name, probe in probes.items():
            if name not in reached and probe():
                reached[name] = time.time() - began
        return len(reached) == len(probes)

    what = " and ".join(probes)
    waiting.until(what, all_reached, within_seconds=within_seconds, every_seconds=POLL_SECONDS, seen=seen)
    return reached


@contextmanager
def repeatedly(act: Callable[[], None], *, every_seconds: float) -> Iterator[None]:
    """Do it again and again beside what follows, in a thread."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_seconds):
            act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
