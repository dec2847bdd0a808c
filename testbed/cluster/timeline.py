"""What happened in a scenario, and when: pods, events of the cluster, logs of every container, steps of the training.

Everything is written to a folder while the scenario runs, so that what is left of a failure is the whole story.
"""

import contextlib
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from hvd_elastic.discovery.ledger.entries import RankSlow, from_lines
from hvd_elastic.mpijob.contract import LEDGER_KEY, LEDGER_SUFFIX
from testbed.kube.kubectl import Kubectl, condition_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A pod as the API server told of it."""

    time: float
    """Seconds since the epoch, when the news arrived here."""
    change: str
    """ADDED, MODIFIED or DELETED."""
    pod: str
    uid: str
    phase: str
    ready: bool
    leaving: bool
    """It has a deletion timestamp."""
    disrupted: str
    """Reason of its DisruptionTarget condition; empty where there is none."""
    node: str


class Timeline:
    """Records one namespace; `start` and `stop` are the test's."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self._kubectl = kubectl
        self._processes: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []
        self._followed: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._with_logs = True
        self.folder = folder
        self.pods: list[Sighting] = []
        self.marks: list[tuple[float, str]] = []
        """What the test did, and when."""
        self.jobs: list[tuple[float, str]] = []
        """MPIJobs, as often as they were told of, and when."""
        self.slow: set[str] = set()
        """Workers that the test makes slow, by their pods: only these may be called so."""
        self.began = time.time()

    def start(self, *, with_logs: bool = True) -> None:
        """Begin to watch, in a folder of its own.

        Without logs the events are left out, too: each costs a program, and a start is slower beside many of them.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._with_logs = with_logs
        self._watch("pods", self._see_pod)
        self._watch("mpijobs", self._see_job)
        if with_logs:
            self._watch("events", lambda change, item: None)

    def stop(self, told: Path) -> None:
        """End all watches, every process of which is gone when this returns, and keep what the training told."""
        with self._lock:
            self._stopped.set()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(timeout=10)
        for thread in self._threads:
            thread.join(timeout=10)
        self.keep(told)

    def keep(self, told: Path) -> None:
        """Keep what the training has told until now: a folder of events, which may not be there."""
        if told.exists():
            shutil.copytree(told, self.folder / "events", dirs_exist_ok=True)

    def mark(self, what: str) -> float:
        """Note what the test does now; returns the time."""
        now = time.time()
        self.marks.append((now, what))
        self._write("marks", {"time": now, "mark": what})
        return now

    def require_no_false_name(self, *, since: float = 0) -> None:
        """Raise AssertionError if a ledger calls a worker slow that the test has not made slow."""
        ledgers = [one for one in self._kubectl.list("configmaps") if one["metadata"]["name"].endswith(LEDGER_SUFFIX)]
        texts = [(one.get("data") or {}).get(LEDGER_KEY, "") for one in ledgers]
        entries = [entry for text in texts for entry in from_lines(text.splitlines())]
        named = [entry for entry in entries if isinstance(entry, RankSlow) and entry.unix >= since]
        assert {entry.pod for entry in named} <= self.slow, named

    def first(self, wanted: Callable[[Sighting], bool], *, since: float = 0) -> Sighting | None:
        """Return the first sighting that is wanted."""
        return next((seen for seen in list(self.pods) if seen.time >= since and wanted(seen)), None)

    def _watch(self, kind: str, see: Callable[[str, dict[str, Any]], None]) -> None:
        """Watch until stopped; a watch that the API server ends, as when it restarts, is begun again."""

        def read(out: IO[str]) -> None:
            self._read(kind, out, see)
            if not self._stopped.wait(1):
                self._watch(kind, see)

        self._follow(("get", kind, "--watch", "--output-watch-events", "-o", "json"), read)

    def _read(self, kind: str, out: IO[str], see: Callable[[str, dict[str, Any]], None]) -> None:
        for change, item in objects(out):
            self._write(kind, {"time": time.time(), "change": change, "object": item})
            see(change, item)

    def _see_job(self, _change: str, item: dict[str, Any]) -> None:
        self.jobs.append((time.time(), item["metadata"]["name"]))

    def _see_pod(self, change: str, item: dict[str, Any]) -> None:
        seen = sighting(change, item)
        self.pods.append(seen)
        self._write("sightings", asdict(seen))
        statuses = item["status"].get("containerStatuses", []) + item["status"].get("initContainerStatuses", [])
        for container in statuses:
            key = seen.uid, container["name"]
            is_running = bool(container.get("state", {}).get("running"))
            if self._with_logs and is_running and key not in self._followed:
                self._followed.add(key)
                self._keep_log(seen, container["name"])

    def _keep_log(self, seen: Sighting, container: str) -> None:
        target = self.folder / "logs" / f"{seen.pod}.{seen.uid[:8]}.{container}.log"
        target.parent.mkdir(exist_ok=True)

        def copy(out: IO[str]) -> None:
            with target.open("w", buffering=1) as kept:
                for line in out:
                    kept.write(f"{time.time() - self.began:8.2f} {line}")

        self._follow(("logs", "--follow", seen.pod, f"--container={container}"), copy)

    def _follow(self, arguments: tuple[str, ...], read: Callable[[IO[str]], None]) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            process = subprocess.Popen(
                self._kubectl.argv(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            assert process.stdout is not None
            thread = threading.Thread(target=_drain, args=(process.stdout, read), daemon=True)
            self._processes.append(process)
            self._threads.append(thread)
            thread.start()

    def _write(self, name: str, value: dict[str, Any]) -> None:
        with self._lock, (self.folder / f"{name}.jsonl").open("a") as out:
            out.write(json.dumps(value) + "\n")


def objects(out: IO[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read a stream of watch events: JSON objects one after the other, each over many lines or one."""
    decoder, text = json.JSONDecoder(), ""
    for line in out:
        text += line
        with contextlib.suppress(json.JSONDecodeError):
            value, end = decoder.raw_decode(text.lstrip())
            text = text.lstrip()[end:]
            yield value["type"], value["object"]


def _drain(out: IO[str], read: Callable[[IO[str]], None]) -> None:
    with contextlib.suppress(ValueError):  # the pipe is closed while it is read: the end
        read(out)


def sighting(change: str, item: dict[str, Any]) -> Sighting:
    """A pod as a watch tells of it now."""
    conditions = item["status"].get("conditions") or []
    targets = [each for each in conditions if each["type"] == "DisruptionTarget" and each["status"] == "True"]
    return Sighting(
        time=time.time(),
        change=change,
        pod=item["metadata"]["name"],
        uid=item["metadata"]["uid"],
        phase=item["status"].get("phase", ""),
        ready=condition_of(item, "Ready") == "True",
        leaving="deletionTimestamp" in item["metadata"],
        disrupted=targets[0].get("reason", "") if targets else "",
        node=item["spec"].get("nodeName", ""),
    )
