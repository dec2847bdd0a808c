"""What befalls a job, one thing at a time, and what its ledger must say of it."""

import json
import random
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from hvd_elastic.discovery.ledger.entries import (
    Entry,
    LauncherEnded,
    WantedChanged,
    WorkerLeaving,
    WorkerProcessLost,
    WorldChanged,
)
from hvd_elastic.mpijob.contract import Role
from testbed.cluster import pods
from testbed.cluster.faults import STANDBY, signal_processes
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.kube import store, waiting
from testbed.kube.errors import ClusterError

SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)


class Incident(StrEnum):
    """The kinds."""

    PREEMPTION = "preemption"
    DELETION = "delete"
    EVICTION = "eviction"
    NODE_LOSS = "node loss"
    KILL = "kill"
    HANG = "hang"
    LAUNCHER_LOSS = "launcher lost"
    SCALING = "scale"
    SUSPENSION = "suspend"


def order(seed: int, *, launcher: str) -> list[Incident]:
    """Each kind once, in an order of the seed.

    With horovodrun the node is lost first: its driver stands still for minutes if rank 0 is on it, and in a young job
    rank 0 is on the other node.
    """
    kinds = list(Incident)
    random.Random(seed).shuffle(kinds)
    return sorted(kinds, key=lambda kind: kind is not Incident.NODE_LOSS) if launcher == "horovodrun" else kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """Part of a ledger without its times, in an order of its own. Pods are `NAME UID`."""

    departures: frozenset[tuple[str, str, str, str]] = frozenset()
    """Pod, why, by whom, detail."""
    losses: frozenset[tuple[str, str]] = frozenset()
    """Of processes: pod, detail."""
    launchers: tuple[tuple[str, int | None, str], ...] = ()
    """That ended: UID, exit code, reason."""
    wanted: tuple[int, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "LedgerRecord":
        """What these entries tell."""
        entries = tuple(entries)
        return cls(
            departures=frozenset(
                (f"{one.pod} {one.uid}", str(one.why), one.by, one.detail)
                for one in entries
                if isinstance(one, WorkerLeaving)
            ),
            losses=frozenset(
                (f"{one.pod} {one.uid}", one.detail) for one in entries if isinstance(one, WorkerProcessLost)
            ),
            launchers=tuple((one.uid, one.exit_code, one.reason) for one in entries if isinstance(one, LauncherEnded)),
            wanted=tuple(one.workers for one in entries if isinstance(one, WantedChanged)),
        )


@dataclass(slots=True, kw_only=True)
class ExpectedRecord:
    """What the ledger must say once an incident is over, and no more."""

    record: LedgerRecord
    survivors: frozenset[str]
    """Pods of the smallest world."""
    words: tuple[tuple[str, str], ...] = ()
    """Of `events`: about whom, and a part of what."""
    undo: Callable[[], Any] | None = None
    """Called once that is told, so that the job can grow back."""
    wanted_after: tuple[int, ...] = ()
    """What is asked for by that."""

    @property
    def whole(self) -> LedgerRecord:
        """What is told in the end."""
        return replace(self.record, wanted=self.record.wanted + self.wanted_after)


def worlds(entries: Iterable[Entry]) -> list[frozenset[str]]:
    """The worlds in their order."""
    return [frozenset(one.workers) for one in entries if isinstance(one, WorldChanged)]


class FaultInjector:
    """Brings incidents about, each on a job at full size."""

    def __init__(self, site: Site, job: Job, chance: random.Random, *, verb: Any) -> None:
        """`verb` runs `hvd-elastic` with these words in the job's namespace."""
        self._site, self._job, self._chance, self._verb = site, job, chance, verb
        self._count = 0
        self._workers: list[dict[str, Any]] = []

    def inject(self, incident: Incident) -> ExpectedRecord:
        """Do it; what must be told of it."""
        self._count += 1
        self._workers = self._job.pods(Role.WORKER)
        match incident:
            case Incident.PREEMPTION:
                return self._preempt()
            case Incident.DELETION:
                return self._delete()
            case Incident.EVICTION:
                return self._evict()
            case Incident.NODE_LOSS:
                return self._cut()
            case Incident.KILL:
                number = self._chance.choice(SIGNALS)
                return self._signal(number, f"killed by {number.name}")
            case Incident.HANG:
                return self._signal(signal.SIGSTOP, "hung")
            case Incident.LAUNCHER_LOSS:
                return self._end_launcher()
            case Incident.SCALING:
                return self._scale()
            case Incident.SUSPENSION:
                return self._suspend()

    def _preempt(self) -> ExpectedRecord:
        kubectl, node = self._job.kubectl, self._chance.choice(sorted(self._site.local().nodes))
        name = f"inference-{self._count}"
        asking = pods.pod(
            name,
            image=store.PAUSE_IMAGE,
            selector={"kubernetes.io/hostname": node},
            gpus=1,
            priority="inference-pc",
        )
        kubectl.apply([asking])

        def victims() -> list[dict[str, Any]]:
            return [pod for pod in self._workers if _is_disrupted(kubectl.find("pod", _name(pod)), pod)]

        # The scheduler chooses: its condition on the pod is the witness, or that the pod is no longer there.
        victim = waiting.until("a worker is preempted", victims, within_seconds=60, every_seconds=0.1)[0]
        by = f"{kubectl.namespace}/{name}"
        return self._without(
            [victim],
            why=("preempted", by, ""),
            words=f"preempted by {by}",
            undo=lambda: pods.delete(kubectl, name),
        )

    def _delete(self) -> ExpectedRecord:
        victim = self._chance.choice(self._workers)
        pods.delete(self._job.kubectl, _name(victim), by_force=self._chance.choice([False, True]))
        return self._without([victim], why=("deleted", "", ""), words="deleted, nothing says by whom")

    def _evict(self) -> ExpectedRecord:
        victim = self._chance.choice(self._workers)
        evict(self._job, _name(victim))
        return self._without([victim], why=("evicted", "", "EvictionByEvictionAPI"), words="leaves: evicted")

    def _cut(self) -> ExpectedRecord:
        link = self._site.local().nodes["spot"].link
        there = [pod for pod in self._workers if pod["spec"]["nodeName"] == "spot"]
        link.set(up=False)
        return self._without(
            there,
            why=("node-lost", "", "spot"),
            words="lost with its node (spot)",
            undo=lambda: link.set(up=True),
        )

    def _signal(self, number: signal.Signals, detail: str) -> ExpectedRecord:
        victim = self._chance.choice(self._workers)
        assert signal_processes(self._job, _name(victim), STANDBY, number)
        return ExpectedRecord(
            record=LedgerRecord(losses=frozenset({(_whole_name(victim), detail)})),
            survivors=self._names(but=[victim]),
            words=((_name(victim), f"its training process is lost ({detail})"),),
        )

    def _end_launcher(self) -> ExpectedRecord:
        launcher = self._launcher()
        uid, how = launcher["metadata"]["uid"], self._chance.choice(["delete", "force", "kill"])
        kubectl, name = self._job.kubectl, _name(launcher)
        code, reason = None, "deleted"
        if how == "kill":
            kubectl("exec", name, "--container=launcher", "--", "sh", "-c", "kill 1")
            reason = "ended by SIGTERM"
            code = waiting.until(
                "the launcher has ended", lambda: _exit_code(kubectl.find("pod", name)), within_seconds=60
            )
        else:
            pods.delete(kubectl, name, by_force=how == "force")
        told = "the launcher was taken away (deleted)" if code is None else f"ends with exit code {code}"
        return ExpectedRecord(
            record=LedgerRecord(launchers=((uid, code, reason),)), survivors=frozenset(), words=((name, told),)
        )

    def _scale(self) -> ExpectedRecord:
        size = self._chance.randrange(1, len(self._workers))
        self._verb("scale", self._job.name, str(size))
        expected = self._without(
            [pod for pod in self._workers if int(_name(pod).rpartition("-")[2]) >= size],
            why=("scaled-down", "", ""),
            words="no longer asked for",
            undo=lambda: self._verb("scale", self._job.name, str(len(self._workers))),
            record={"wanted": (size,)},
        )
        expected.wanted_after = (len(self._workers),)
        return expected

    def _suspend(self) -> ExpectedRecord:
        launcher = self._launcher()
        self._verb("suspend", self._job.name)
        expected = self._without(
            self._workers,
            why=("suspended", "", ""),
            words="stopped with the job",
            record={"launchers": ((launcher["metadata"]["uid"], None, "suspended"),)},
        )
        waiting.until(
            "every pod is gone",
            lambda: not self._job.pods(Role.WORKER) and not self._runs(launcher),
            within_seconds=90,
            every_seconds=0.5,
        )
        self._verb("resume", self._job.name)
        return expected

    def _without(
        self,
        gone: list[dict[str, Any]],
        *,
        why: tuple[str, str, str],
        words: str,
        undo: Callable[[], Any] | None = None,
        record: dict[str, Any] | None = None,
    ) -> ExpectedRecord:
        departures = frozenset((_whole_name(pod), *why) for pod in gone)
        return ExpectedRecord(
            record=LedgerRecord(departures=departures, **(record or {})),
            survivors=self._names(but=gone),
            words=tuple((_name(pod), words) for pod in gone),
            undo=undo,
        )

    def _names(self, *, but: list[dict[str, Any]]) -> frozenset[str]:
        return frozenset(map(_name, self._workers)) - frozenset(map(_name, but))

    def _runs(self, launcher: dict[str, Any]) -> bool:
        found = self._job.kubectl.find("pod", _name(launcher))
        return found is not None and found["status"].get("phase") == "Running"

    def _launcher(self) -> dict[str, Any]:
        launchers = self._job.pods(Role.LAUNCHER)
        return next(
            pod
            for pod in launchers
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        )


def evict(job: Job, name: str) -> None:
    """As `kubectl drain` does, again and again while a disruption budget refuses it."""
    waiting.until(f"{name} may be evicted", lambda: is_evicted(job, name), within_seconds=60, every_seconds=1)


def is_evicted(job: Job, name: str) -> bool:
    """Ask for it once; whether no disruption budget refuses it."""
    metadata = {"name": name, "namespace": job.kubectl.namespace}
    eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/{job.kubectl.namespace}/pods/{name}/eviction"
    try:
        job.kubectl("create", "--raw", path, "-f", "-", stdin=eviction)
    except ClusterError as error:
        if "disruption budget" in str(error):
            return False
        raise
    return True


def _name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _whole_name(pod: dict[str, Any]) -> str:
    return f"{_name(pod)} {pod['metadata']['uid']}"


def _is_disrupted(now: dict[str, Any] | None, before: dict[str, Any]) -> bool:
    if now is None or now["metadata"]["uid"] != before["metadata"]["uid"]:
        return True
    conditions = now["status"].get("conditions") or []
    return any(one["type"] == "DisruptionTarget" and one["status"] == "True" for one in conditions)


def _exit_code(launcher: dict[str, Any] | None) -> int | None:
    """Of a launcher's container, once it has ended."""
    for container in ((launcher or {}).get("status") or {}).get("containerStatuses") or ():
        if ended := container["state"].get("terminated"):
            return int(ended["exitCode"])
    return None
