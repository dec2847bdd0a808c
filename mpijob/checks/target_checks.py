"""What a cluster needs and a local run does not, and what only some kinds of jobs can express."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from hvd_elastic.mpijob.description.job_spec import AutoscaleSpec, JobSpec, LauncherKind
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.supporting.shared_storage import mounts
from hvd_elastic.priorityclasses.problem import Problem


def problems(spec: JobSpec, target: Target) -> Iterator[Problem]:
    """Checks whether the job can be written as `target`."""
    if spec.image is None:
        way_out = "add it: a cluster runs the job from an image"
        yield Problem(path="image", value=None, what="is missing", way_out=way_out)
    for mount in mounts(spec):
        volume = mount.volume
        if not (volume.claim or volume.size or volume.efs or volume.fsx or volume.csi):
            what = "names only a local folder"
            way_out = f"set {mount.name}.claim for the cluster"
            yield Problem(path=mount.name, value=volume.local, what=what, way_out=way_out)
    yield from _checkpoint_folder(spec)
    if spec.autoscale is not None:
        yield from _autoscale(spec, spec.autoscale, target)
    if target is Target.MPIJOB_V1 and spec.launcher.kind is LauncherKind.LAUNCH:
        what = "opens ssh connections ahead of need, and kubeflow.org/v1 has no ssh"
        yield Problem(path="launcher.kind", value="launch", what=what, way_out="use horovodrun")


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
        what = f"is below the {workers.min * workers.gpus} GPUs of workers.min"
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
    folder = PurePosixPath(urlsplit(spec.checkpoint.url).path)
    if spec.output is None or not folder.is_relative_to(spec.output.mount):
        what = "is not on shared storage: it would be lost with the pod"
        way_out = f"choose a folder in {spec.output.mount}" if spec.output else "set output, and choose a folder in it"
        yield Problem(path="checkpoint.url", value=spec.checkpoint.url, what=what, way_out=way_out)
