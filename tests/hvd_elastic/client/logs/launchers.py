"""Launchers of a job at the fake API server, and their containers' logs as a kubelet serves them."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, LABEL_JOB_NAME, LABEL_JOB_ROLE
from testbed.kube_api import JOBS, PODS, Cut, KubeApi, Request, Status, mpijob

BORN = "2026-01-01T00:00:00Z"
START = datetime(2026, 1, 1, tzinfo=UTC)

Json = dict[str, Any]


def stamp(seconds: float) -> str:
    """As a kubelet writes it, so many seconds after the job was made."""
    return f"{START + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S.%f}000Z"


def job(*, suspended: bool = False, **status: Any) -> Json:
    made = mpijob(annotations={ANNOTATION_SPEC: "{}"})
    made["metadata"] |= {"creationTimestamp": BORN, "namespace": "default"}
    made["spec"]["runPolicy"] = {"suspend": suspended}
    return {**made, "status": status}


def finished(condition: str = "Succeeded") -> Json:
    return job(completionTime=BORN, conditions=[{"type": condition, "status": "True"}])


def launcher(
    name: str = "job-launcher-a",
    *,
    minute: int = 0,
    state: Json | None = None,
    last: Json | None = None,
    restarts: int = 0,
    phase: str = "Running",
    uid: str = "",
) -> Json:
    """A launcher's pod. `state` and `last` are of its container; None: none of its containers has a status yet."""
    status = {"name": "launcher", "restartCount": restarts, "state": state, "lastState": last or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z",
            "labels": {LABEL_JOB_NAME: "job", LABEL_JOB_ROLE: "launcher"},
        },
        "spec": {"containers": [{"name": "launcher"}], "initContainers": [{"name": "discovery"}]},
        "status": {"phase": phase, **({"containerStatuses": [status]} if state is not None else {})},
    }


def running() -> Json:
    return {"running": {"startedAt": BORN}}


def ended(code: int = 0, reason: str = "") -> Json:
    return {"terminated": {"exitCode": code, "reason": reason or ("Error" if code else "Completed")}}


class ContainerLog:
    """One container's log file, served as a kubelet does: by whole seconds, the present file only, followed."""

    def __init__(self, api: KubeApi, pod: str) -> None:
        self._changed = threading.Condition()
        self._file: list[tuple[float, bytes]] = []
        self._is_open = True
        self._cuts = 0
        self.requests: list[Request] = []
        api.streams[f"{PODS}/{pod}/log"] = self._serve

    def write(self, seconds: float, text: str) -> None:
        with self._changed:
            self._file.append((seconds, f"{stamp(seconds)} {text}\n".encode()))
            self._changed.notify_all()

    def rotate(self) -> None:
        with self._changed:
            self._file = []

    def close(self) -> None:
        """The container has ended."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def cut(self) -> None:
        """Break what follows, in the middle of a line."""
        with self._changed:
            self._cuts += 1
            self._changed.notify_all()

    def is_followed(self, times: int) -> bool:
        return sum("follow" in request.query for request in self.requests) >= times

    def _serve(self, request: Request) -> Iterator[bytes]:
        query = request.query
        if query.get("timestamps") != "true" or query.get("container") != "launcher":
            raise Status(400)
        since = -1e9
        if "sinceTime" in query:
            since = (datetime.fromisoformat(query["sinceTime"]) - START).total_seconds()
        with self._changed:
            file, cuts = self._file, self._cuts
        # Whoever sees the request may cut what follows it.
        self.requests.append(request)
        position = max(0, len(file) - int(query["tailLines"])) if "tailLines" in query else 0
        return self._lines(file, position, cuts, since, follows="follow" in query)

    def _lines(
        self, file: list[tuple[float, bytes]], position: int, cuts: int, since: float, *, follows: bool
    ) -> Iterator[bytes]:
        while True:
            with self._changed:
                if position == len(file) and follows and self._is_open and cuts == self._cuts:
                    self._changed.wait(30)
                fresh, position = file[position:], len(file)
                is_cut, is_over = cuts != self._cuts, not (follows and self._is_open)
            yield from (line for seconds, line in fresh if seconds >= since)
            if is_cut:
                yield b"2026-01-01T00:0"
                raise Cut
            if is_over and not fresh:
                return


def serve_job(api: KubeApi, *pods: Json, job: Json) -> None:
    api.put(JOBS, job)
    for pod in pods:
        api.put(PODS, pod)
