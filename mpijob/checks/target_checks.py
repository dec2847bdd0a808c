"""What a cluster needs and a local run does not, and what only some kinds of jobs can express."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from hvd_elastic.mpijob.description.job_spec import JobSpec, LauncherKind
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
        if not (volume.claim or volume.size or volume.efs or volume.fsx):
            what = "names only a local folder"
            way_out = f"set {mount.name}.claim for the cluster"
            yield Problem(path=mount.name, value=volume.local, what=what, way_out=way_out)
    yield from _checkpoint_folder(spec)
    if target is Target.MPIJOB_V1 and spec.launcher.kind is LauncherKind.LAUNCH:
        what = "opens ssh connections ahead of need, and kubeflow.org/v1 has no ssh"
        yield Problem(path="launcher.kind", value="launch", what=what, way_out="use horovodrun")


def _checkpoint_folder(spec: JobSpec) -> Iterator[Problem]:
    """A folder in the container's own file system would be lost with the pod."""
    if spec.checkpoint is None or not spec.checkpoint.url.startswith("file:"):
        return
    folder = PurePosixPath(urlsplit(spec.checkpoint.url).path)
    if spec.output is None or not folder.is_relative_to(spec.output.mount):
        what = "is not on shared storage: it would be lost with the pod"
        way_out = f"choose a folder in {spec.output.mount}" if spec.output else "set output, and choose a folder in it"
        yield Problem(path="checkpoint.url", value=spec.checkpoint.url, what=what, way_out=way_out)
