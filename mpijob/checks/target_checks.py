"""What a cluster needs and a local run does not, and what only some kinds of jobs can express."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from hvd_elastic.mpijob.contract import Engine
from hvd_elastic.mpijob.description.job_spec import (
    AutoscaleSpec,
    JobSpec,
    LauncherKind,
    PrioritySpec,
)
from hvd_elastic.mpijob.description.mounts import mounts
from hvd_elastic.mpijob.description.network_spec import NetworkSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.plain_words import count_words

_NO_LAUNCHER: Final = "has no effect: a PyTorchJob has no launcher, torchrun runs in each worker"
_NOT_HOROVOD: Final = "has no effect: it is a setting of Horovod's, and torchrun starts this job"
_NOT_OURS: Final = "has no effect: only the script runs in the pods of a PyTorchJob, and nothing there reads it"
_DROPPED_BY_TORCHRUN: Final = {
    "launcher": _NO_LAUNCHER,
    "launcher_node_labels": _NO_LAUNCHER,
    "read_nodes": _NO_LAUNCHER,
    "slow_workers": _NOT_OURS,
    "elastic_timeout": _NOT_HOROVOD,
    "cooldown": _NOT_HOROVOD,
    "gloo_timeout": _NOT_HOROVOD,
    "engine": "has no effect: torchrun starts this job, with torch.distributed and without hvd-elastic",
    "batch": _NOT_OURS,
    "standby": _NOT_OURS,
    "log_format": _NOT_OURS,
    "restarts": "has no effect: it counts launchers, and a PyTorchJob has none; reset_limit counts torchrun's restarts",
    "checkpoint": "has no effect: nothing of hvd-elastic runs in the pods of a PyTorchJob, so nobody writes it",
    "monitor": "has no effect: no port of a PyTorchJob's pods serves metrics",
}
"""Keys that a PyTorchJob cannot express, and why."""
_NETWORK_OF_OURS: Final = {
    "api_ports": _NO_LAUNCHER,
    "api_server": _NO_LAUNCHER,
    "host_port": "has no effect: torchrun chooses the ports of a PyTorchJob",
    "nodes": "has no effect: the workers of a PyTorchJob may not have their nodes' network",
    "monitoring_namespace": "has no effect: no port of a PyTorchJob's pods serves metrics",
}
"""The same below `network`."""


def problems(spec: JobSpec, target: Target) -> Iterator[Problem]:
    """Checks whether the job can be written as `target`."""
    if spec.image is None:
        way_out = "add it: a cluster runs the job from an image"
        yield Problem(path="image", value=None, what="is missing", way_out=way_out)
    for mount in mounts(spec):
        volume = mount.volume
        if not (volume.claim or volume.size or volume.efs or volume.fsx or volume.csi or mount.bucket):
            what = "names only a local folder"
            way_out = f"set {mount.name}.claim for the cluster"
            yield Problem(path=mount.name, value=volume.local, what=what, way_out=way_out)
    yield from _checkpoint_folder(spec)
    if spec.autoscale is not None:
        yield from _autoscale(spec, spec.autoscale, target)
    if target is not Target.MPIJOB:
        yield from _no_floor(spec)
        yield from _no_whole_queue(spec, target)
    if target is Target.MPIJOB_V1 and spec.engine is Engine.TORCH:
        what = "takes launcher: launch, which opens ssh connections ahead of need, and kubeflow.org/v1 has no ssh"
        yield Problem(path="engine", value=spec.engine.value, what=what, way_out=_way_out(spec, "engine"))
    elif target is Target.MPIJOB_V1 and spec.launcher.kind is LauncherKind.LAUNCH:
        what = "opens ssh connections ahead of need, and kubeflow.org/v1 has no ssh"
        yield Problem(path="launcher.kind", value="launch", what=what, way_out="use horovodrun")
    if target is Target.MPIJOB_V1:
        yield from _dropped_by_legacy(spec)
    if target is Target.PYTORCHJOB:
        yield from _dropped_by_torchrun(spec)


def _no_floor(spec: JobSpec) -> Iterator[Problem]:
    what = "is for MPIJobs of kubeflow.org/v2beta1: it was not tried with the training-operator's pods"
    floors = {"workers.floor": spec.workers.floor or None, "priority.floor": spec.priority.floor}
    for path, value in floors.items():
        if value not in (None, PrioritySpec().floor):
            yield Problem(path=path, value=value, what=what, way_out=_way_out(spec, path))


def _no_whole_queue(spec: JobSpec, target: Target) -> Iterator[Problem]:
    if spec.queue and spec.queue.takes_whole:
        # Kueue, `pkg/controller/jobs/mpijob/mpijob_controller.go`: its JobType is that of kubeflow.org/v2beta1 alone.
        legacy = "has no effect: Kueue knows no kubeflow.org/v1 MPIJob, so the job would start without being admitted"
        torch = "needs a checkpoint, which nothing in the pods of a PyTorchJob writes"
        what = legacy if target is Target.MPIJOB_V1 else torch
        yield Problem(path="queue.whole", value=True, what=what, way_out=_way_out(spec, "queue.whole"))


def _dropped_by_legacy(spec: JobSpec) -> Iterator[Problem]:
    if "restarts" in spec.model_fields_set and spec.restarts:
        # training-operator 1.8, `pkg/controller.v1/mpi/mpijob_controller.go`, `updateMPIJobStatus`.
        what = "has no effect: the training-operator ends the job with the first launcher that fails"
        way_out = f"leave it out, or generate --as {Target.MPIJOB}"
        yield Problem(path="restarts", value=spec.restarts, what=what, way_out=way_out)


def _dropped_by_torchrun(spec: JobSpec) -> Iterator[Problem]:
    """Keys that have a value of their own, which would be dropped in silence."""
    for key, what in _DROPPED_BY_TORCHRUN.items():
        if _is_given(spec, key):
            given = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include={key})
            yield Problem(path=key, value=given.get(key, getattr(spec, key)), what=what, way_out=_way_out(spec, key))
    if spec.autoscale is None and spec.workers.start > spec.workers.min:
        what = "has no effect without autoscale: torchrun starts with workers.min, and takes the others in as they come"
        way_out = f"leave it out and set workers.max, or generate --as {Target.MPIJOB}"
        yield Problem(path="workers.start", value=spec.workers.start, what=what, way_out=way_out)
    if spec.workers.sizes:
        what = "has no effect: torchrun trains with any number of workers from workers.min to workers.max"
        way_out = _way_out(spec, "workers.sizes")
        yield Problem(path="workers.sizes", value=spec.workers.sizes, what=what, way_out=way_out)
    if spec.workers.on_host_network:
        what, path = (
            "has two workers of a node share torchrun's ports, which no key chooses",
            "workers.pod.spec.hostNetwork",
        )
        yield Problem(path=path, value=True, what=what, way_out=_way_out(spec, path))
    for key, what in _NETWORK_OF_OURS.items():
        if getattr(spec.network, key) != getattr(NetworkSpec(), key):
            path, given = f"network.{key}", spec.network.model_dump(mode="json", include={key})[key]
            yield Problem(path=path, value=given, what=what, way_out=_way_out(spec, path))
    if spec.output is not None and spec.output.bucket is not None:
        what = "takes no TensorBoard events of a PyTorchJob: only a worker of hvd-elastic copies them there"
        way_out = f"set output.claim, or generate --as {Target.MPIJOB}"
        yield Problem(path="output.bucket", value=spec.output.bucket.url, what=what, way_out=way_out)
    if spec.priority.launcher != PrioritySpec().launcher:
        way_out = _way_out(spec, "priority.launcher")
        yield Problem(path="priority.launcher", value=spec.priority.launcher, what=_NO_LAUNCHER, way_out=way_out)


def _is_given(spec: JobSpec, key: str) -> bool:
    """Whether a key has a value of its own. `restarts` promises something by its default too."""
    if key == "restarts":
        return key in spec.model_fields_set
    # Before 2.12 pydantic asks for the data even where the factory takes none.
    default = JobSpec.model_fields[key].get_default(call_default_factory=True, validated_data={})
    return bool(getattr(spec, key) != default)


def _way_out(spec: JobSpec, key: str) -> str:
    if key != "checkpoint":
        return f"leave it out, or generate --as {Target.MPIJOB}"
    if spec.queue and spec.queue.takes_whole:
        return f"generate --as {Target.MPIJOB}: with queue.whole a job needs it"
    return f"leave it out and have the script save to output, or generate --as {Target.MPIJOB}"


def _autoscale(spec: JobSpec, autoscale: AutoscaleSpec, target: Target) -> Iterator[Problem]:
    """Each kind of job has an autoscaler of its own, and a key of the other one would be dropped in silence."""
    foreign = {"cpu_percent"} if target is Target.MPIJOB else {"weight", "quota", "buy", "budget"}
    if target is Target.MPIJOB_V1:
        what = "has no effect: nothing changes the workers of a kubeflow.org/v1 MPIJob"
        yield Problem(path="autoscale", value=_text(autoscale), what=what, way_out="use mpijob, or leave it out")
        return
    for key in sorted(foreign & autoscale.model_fields_set):
        other = Target.PYTORCHJOB if target is Target.MPIJOB else Target.MPIJOB
        what, way_out = f"is of another autoscaler than {target}'s", f"leave it out, or generate --as {other}"
        yield Problem(path=f"autoscale.{key}", value=getattr(autoscale, key), what=what, way_out=way_out)
    if target is Target.MPIJOB:
        yield from _shares(spec, autoscale)


def _shares(spec: JobSpec, autoscale: AutoscaleSpec) -> Iterator[Problem]:
    workers = spec.workers
    if not workers.gpus:
        what, way_out = "shares GPUs, and the workers have none", "set workers.gpus, or leave autoscale out"
        yield Problem(path="autoscale", value=_text(autoscale), what=what, way_out=way_out)
    if autoscale.quota is not None and autoscale.quota < workers.min * workers.gpus:
        what = f"is below what workers.min has: {count_words(workers.min * workers.gpus, 'GPU')}"
        yield Problem(
            path="autoscale.quota", value=autoscale.quota, what=what, way_out="raise it, or lower workers.min"
        )
    if autoscale.budget is not None and not autoscale.buy:
        way_out = "set autoscale.buy, or leave it out"
        yield Problem(path="autoscale.budget", value=autoscale.budget, what="limits what is bought", way_out=way_out)


def _text(autoscale: AutoscaleSpec) -> str:
    return autoscale.model_dump_json(exclude_unset=True)


def _checkpoint_folder(spec: JobSpec) -> Iterator[Problem]:
    """A folder in the container's own file system would be lost with the pod."""
    if spec.checkpoint is None or not spec.checkpoint.url.startswith("file:"):
        return
    folder = PurePosixPath(unquote(urlsplit(spec.checkpoint.url).path))
    if spec.output is None or not folder.is_relative_to(spec.output.mount):
        what = "is not on shared storage: it would be lost with the pod"
        way_out = f"choose a folder in {spec.output.mount}" if spec.output else "set output, and choose a folder in it"
        yield Problem(path="checkpoint.url", value=spec.checkpoint.url, what=what, way_out=way_out)
