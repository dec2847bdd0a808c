"""Plays what a cluster is for: a small job trains, inference asks for a GPU, gets it, and gives it back.

All of it is in a namespace of its own, on nodes whose GPUs nobody holds, and is removed however it ends.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    ClusterError,
    Json,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from hvd_elastic.client.connection.long_wait import LongWait
from hvd_elastic.client.doctor import rehearsal_manifests as manifests
from hvd_elastic.client.doctor.cluster_facts import Right
from hvd_elastic.client.doctor.fact_reader import NEEDED_RIGHTS, FactReader
from hvd_elastic.client.doctor.rehearsal_manifests import RehearsalImage
from hvd_elastic.client.doctor.rehearsal_record import RehearsalRecord, ToldStep, told_steps, trouble_of
from hvd_elastic.client.doctor.rehearsal_stage import WORKERS, RehearsalRefusedError, Stage, choose_stage, gpus_held
from hvd_elastic.client.job_lookup import description_of
from hvd_elastic.client.logs.job_log import JobLog, NoLogError
from hvd_elastic.client.logs.log_reading import LogRequest
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, GPU_RESOURCE, LABEL_JOB_ROLE, Engine, Role
from hvd_elastic.priorityclasses import DEFAULTS, Tier

START_SECONDS: Final = 300.0
"""For pulling the image, and the first step."""
YIELD_SECONDS: Final = 120.0
GROW_SECONDS: Final = 120.0
REMOVE_SECONDS: Final = 120.0
_EVERY_SECONDS: Final = 0.3
_LAST_LINES: Final = 20
_WHOLE_SECONDS: Final = 3600

_RIGHTS: Final = (
    *(Right(verb=verb, resource="namespaces") for verb in ("create", "get", "delete")),
    Right(verb="list", resource="nodes"),
    *(Right(verb=verb, resource="pods") for verb in ("create", "get")),
    *NEEDED_RIGHTS,
)
"""In every namespace: the one of the rehearsal is not there yet."""


def image_of_newest(jobs: Iterable[Json]) -> RehearsalImage | None:
    """The image of the newest MPIJob that was generated from a description; None if there is none."""
    ours = [job for job in jobs if ANNOTATION_SPEC in (job["metadata"].get("annotations") or {})]
    newest = max(ours, key=lambda job: str(job["metadata"]["creationTimestamp"]), default=None)
    description = description_of(newest) if newest else {}
    image = description.get("image")
    if not isinstance(image, str):
        return None
    is_torch = description.get("engine") == Engine.TORCH
    return RehearsalImage(name=image, engine=Engine.TORCH if is_torch else Engine.HOROVOD)


class Rehearsal:
    """One rehearsal."""

    def __init__(
        self,
        cluster: ClusterClient,
        *,
        suffix: str,
        image: RehearsalImage | None = None,
        resource: str = GPU_RESOURCE,
        say: Callable[[str], None] = lambda _sentence: None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Sends nothing yet.

        Args:
            cluster: where it takes place.
            suffix: of the namespace's name; no other rehearsal may have it.
            image: of the job. None: that of the newest job of this client's namespace. Those of other namespaces are
                their tenants' code, which must not run for an administrator.
            resource: the GPUs that nodes offer.
            say: is told what happens.
            clock: any steady clock, in seconds.
            pause: sleeps so many seconds.
        """
        self._cluster, self._image, self._resource = cluster, image, resource
        self._say, self._clock, self._pause = say, clock, pause
        self._space = manifests.namespace(suffix)
        self._name: str = self._space["metadata"]["name"]
        self._pods = f"/api/v1/namespaces/{self._name}/pods"

    def run(self) -> RehearsalRecord:
        """Play it, and remove all of it.

        Raises RehearsalRefusedError if it may not be played, nearly always before anything is made, and ClusterError.
        """
        self._require_rights()
        self._require_classes()
        image = self._image or self._known_image()
        stage = self._choose_stage()
        self._say(f"namespace {self._name}, on {', '.join(stage.nodes)}; it is removed at the end, also after Ctrl-C")
        with self._namespace():
            return self._play(stage, image)

    # --- Before ------------------------------------------------------------------------------------------------------

    def _require_rights(self) -> None:
        reader = FactReader(self._cluster, "")
        if missing := [str(right) for right in _RIGHTS if not reader.may(right)]:
            raise RehearsalRefusedError(
                f"a rehearsal needs rights in all namespaces that you lack: {', '.join(missing)}"
            )

    def _require_classes(self) -> None:
        there = {one["metadata"]["name"] for one in self._cluster.list("/apis/scheduling.k8s.io/v1/priorityclasses")}
        if missing := [one.name for one in DEFAULTS if one.tier is not Tier.FLOOR and one.name not in there]:
            fix = "hvd-elastic priorityclasses | kubectl apply -f -"
            raise RehearsalRefusedError(f"there is no PriorityClass {' and no '.join(missing)}: {fix}")

    def _known_image(self) -> RehearsalImage:
        namespace = self._cluster.namespace
        try:
            image = image_of_newest(self._cluster.list(f"/apis/kubeflow.org/v2beta1/namespaces/{namespace}/mpijobs"))
        except NotFoundError as error:
            raise RehearsalRefusedError("this cluster serves no MPIJob v2beta1: install the MPI Operator") from error
        if image is None:
            raise RehearsalRefusedError(
                f"no job in namespace {namespace} has an image that could be taken: name one with --image"
            )
        return image

    def _choose_stage(self) -> Stage:
        nodes = list(self._cluster.list("/api/v1/nodes"))
        return choose_stage(nodes, self._cluster.list("/api/v1/pods"), self._resource)

    # --- The play ----------------------------------------------------------------------------------------------------

    def _play(self, stage: Stage, image: RehearsalImage) -> RehearsalRecord:
        record = RehearsalRecord(workers=WORKERS)
        made = [self._make(one) for one in manifests.job(self._name, image, stage, self._resource)]
        mpijob = next(one for one in made if one["kind"] == "MPIJob")
        self._say(f"a job of {WORKERS} workers is made from {image.name}")
        started = self._time({"started": lambda: self._size(mpijob) == WORKERS}, START_SECONDS)
        record = replace(record, started=started["started"])
        if record.started is None:
            return self._with_trouble(record)
        self._say(f"{WORKERS} workers train; inference asks for a GPU")
        record = self._give_way(record, stage, image, mpijob)
        if record.ran is None:
            return self._with_trouble(record)
        self._say("inference has its GPU; now it goes")
        self._cluster.ask("DELETE", f"{self._pods}/{manifests.INFERENCE}")
        grew = self._time({"grew": lambda: self._size(mpijob) == WORKERS}, GROW_SECONDS)
        record = replace(record, grew=grew["grew"])
        return self._with_trouble(replace(record, steps=self._steps(mpijob)))

    def _give_way(self, record: RehearsalRecord, stage: Stage, image: RehearsalImage, mpijob: Json) -> RehearsalRecord:
        before = self._workers()
        self._require_alone(stage)
        self._make(manifests.inference(self._name, image.name, stage, self._resource))
        happened = self._time(
            {
                "ran": self._inference_runs,
                "left": lambda: bool(before.keys() - self._workers().keys()),
                "shrank": lambda: self._size(mpijob) == WORKERS - 1,
            },
            YIELD_SECONDS,
        )
        gone = sorted(before[uid] for uid in before.keys() - self._workers().keys())
        ran, left, shrank = (happened[name] for name in ("ran", "left", "shrank"))
        return replace(record, victim=", ".join(gone), ran=ran, left=left, shrank=shrank)

    def _require_alone(self, stage: Stage) -> None:
        """Whoever came meanwhile must not be preempted by a rehearsal."""
        held = gpus_held(self._cluster.list("/api/v1/pods"), self._resource)
        others = [pod for node in stage.nodes for pod in held.get(node, {}) if not pod.startswith(f"{self._name}/")]
        if others:
            raise RehearsalRefusedError(f"{', '.join(others)} came to the rehearsal's nodes meanwhile: try again later")

    def _time(self, events: Mapping[str, Callable[[], bool]], limit_seconds: float) -> dict[str, float | None]:
        """Seconds until each of these has happened; None for what has not within the limit."""
        began = self._clock()
        found: dict[str, float | None] = dict.fromkeys(events)
        while self._clock() - began < limit_seconds and None in found.values():
            for name, has_happened in events.items():
                if found[name] is None and self._attempt(has_happened):
                    found[name] = self._clock() - began
            self._pause(_EVERY_SECONDS)
        return found

    def _attempt(self, has_happened: Callable[[], bool]) -> bool:
        try:
            return has_happened()
        except (NoLogError, NotFoundError, RefusedError, UnreachableError):
            return False  # It is asked again.

    def _size(self, mpijob: Json) -> int:
        steps = told_steps(JobLog(self._cluster, mpijob).read(LogRequest(tail=_LAST_LINES)))
        return steps[-1].size if steps else 0

    def _steps(self, mpijob: Json) -> Sequence[ToldStep]:
        return told_steps(JobLog(self._cluster, mpijob).read(LogRequest(since_seconds=_WHOLE_SECONDS)))

    def _workers(self) -> dict[str, str]:
        """Names of the worker pods by UID."""
        listed = self._cluster.list(self._pods, labelSelector=f"{LABEL_JOB_ROLE}={Role.WORKER}")
        return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in listed}

    def _inference_runs(self) -> bool:
        pod = self._cluster.get(f"{self._pods}/{manifests.INFERENCE}")
        return bool(pod["status"].get("phase") == "Running")

    def _with_trouble(self, record: RehearsalRecord) -> RehearsalRecord:
        return replace(record, trouble=trouble_of(self._cluster.list(self._pods)))

    # --- What is made, and what is left ------------------------------------------------------------------------------

    @contextmanager
    def _namespace(self) -> Iterator[None]:
        """Makes the namespace, and removes it. One that the API server refused to make may be another rehearsal's."""
        try:
            self._make(self._space)
        except (UnreachableError, KeyboardInterrupt):
            self._remove()
            raise
        try:
            yield
        finally:
            self._remove()

    def _make(self, manifest: Json) -> Json:
        return self._cluster.create(manifests.collection(manifest), manifest)

    def _remove(self) -> None:
        path = f"/api/v1/namespaces/{self._name}"
        job = f"/apis/kubeflow.org/v2beta1/namespaces/{self._name}/mpijobs/{manifests.JOB}"
        self._say(f"removing namespace {self._name}")
        try:
            self._delete(job)  # First, or the operator makes pods in a namespace that goes.
            self._delete(path)
            is_gone = self._time({"gone": lambda: self._is_gone(path)}, REMOVE_SECONDS)["gone"] is not None
        except ClusterError as error:
            self._say(f"it could not be removed: {error}: kubectl delete namespace {self._name}")
            return
        self._say("it is gone" if is_gone else f"it still goes: kubectl get namespace {self._name}")

    def _delete(self, path: str) -> None:
        """A fault that passes does not leave it behind."""
        wait = LongWait(say=self._say, sleep=self._pause, clock=self._clock)
        with suppress(NotFoundError):
            wait.look(lambda: self._cluster.ask("DELETE", path), until=self._clock() + REMOVE_SECONDS)

    def _is_gone(self, path: str) -> bool:
        try:
            self._cluster.get(path)
        except NotFoundError:
            return True
        return False
