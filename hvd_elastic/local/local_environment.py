"""The environment of a job's processes on this machine: what its pods would find in a cluster, with local values."""

import os
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import pod_environment


def local_environment(spec: JobSpec, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`inherited`, overlaid with what the job's pods would find.

    `python` is the interpreter that runs this code. An inherited OMP_NUM_THREADS is kept.
    """
    values = pod_environment.training(_placed_here(spec))
    values[contract.ENV_INCARNATION] = uuid.uuid4().hex
    values[contract.ENV_ENGINE] = spec.engine.value  # whatever is inherited
    if spec.workers.grace is not None:
        values[contract.ENV_GRACE_SECONDS] = str(spec.workers.grace)
    if "OMP_NUM_THREADS" in inherited and "OMP_NUM_THREADS" not in spec.env:
        del values["OMP_NUM_THREADS"]
    path = os.pathsep.join((str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)))
    return {**inherited, "PATH": path, **values}


def _placed_here(spec: JobSpec) -> JobSpec:
    """The job with this machine's folders and network interface instead of a cluster's."""
    placed: dict[str, object] = {"network": spec.network.model_copy(update={"interface": "lo"})}
    for key, volume in (("data", spec.data), ("output", spec.output)):
        if volume and volume.local:
            here = {"mount": str(Path(volume.local).absolute()), **({"bucket": None} if key == "output" else {})}
            placed[key] = volume.model_copy(update=here)
    return spec.model_copy(update=placed)
