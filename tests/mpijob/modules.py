"""Files from Go modules: the real schemas, fetched once through the module proxy and kept outside the checkout."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.debian_programs import needed


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFile:
    """One file of a pinned module."""

    module: str
    version: str
    path: str

    def local(self) -> Path:
        """The file on this machine. Skips the test, with the reason, if it cannot be fetched."""
        kept = cache_folder() / self.module.replace("/", "_") / self.version / Path(self.path).name
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            temporary = kept.with_suffix(f".{os.getpid()}")
            shutil.copyfile(self._downloaded() / self.path, temporary)
            temporary.replace(kept)
        return kept

    def _downloaded(self) -> Path:
        wanted = f"{self.module}@{self.version}"
        done = subprocess.run(
            [needed("go"), "mod", "download", "-json", wanted],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"{wanted} cannot be fetched through the Go module proxy: {done.stdout}{done.stderr}")
        return Path(json.loads(done.stdout)["Dir"])


def cache_folder() -> Path:
    """The folder that keeps real parts between test runs, outside the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hvd-elastic" / "schemas"


KUBERNETES = ModuleFile(module="k8s.io/kubernetes", version="v1.37.2", path="api/openapi-spec/swagger.json")
MPI_OPERATOR = ModuleFile(
    module="github.com/kubeflow/mpi-operator", version="v0.8.2", path="manifests/base/kubeflow.org_mpijobs.yaml"
)
_TRAINING = ("github.com/kubeflow/training-operator", "v1.8.1", "manifests/base/crds")
LEGACY_MPIJOB = ModuleFile(module=_TRAINING[0], version=_TRAINING[1], path=f"{_TRAINING[2]}/kubeflow.org_mpijobs.yaml")
PYTORCHJOB = ModuleFile(module=_TRAINING[0], version=_TRAINING[1], path=f"{_TRAINING[2]}/kubeflow.org_pytorchjobs.yaml")
_OPERATOR = ("github.com/prometheus-operator/prometheus-operator", "v0.79.2", "example/prometheus-operator-crd")
POD_MONITOR = ModuleFile(
    module=_OPERATOR[0], version=_OPERATOR[1], path=f"{_OPERATOR[2]}/monitoring.coreos.com_podmonitors.yaml"
)
_KUEUE = ("sigs.k8s.io/kueue", "v0.19.2", "config/components/crd/bases")
CLUSTER_QUEUE = ModuleFile(module=_KUEUE[0], version=_KUEUE[1], path=f"{_KUEUE[2]}/kueue.x-k8s.io_clusterqueues.yaml")
FLAVOR = ModuleFile(module=_KUEUE[0], version=_KUEUE[1], path=f"{_KUEUE[2]}/kueue.x-k8s.io_resourceflavors.yaml")
PROMETHEUS_RULE = ModuleFile(
    module=_OPERATOR[0], version=_OPERATOR[1], path=f"{_OPERATOR[2]}/monitoring.coreos.com_prometheusrules.yaml"
)
SCALED_OBJECT = ModuleFile(
    module="github.com/kedacore/keda/v2", version="v2.21.0", path="config/crd/bases/keda.sh_scaledobjects.yaml"
)
INTERCEPTOR_ROUTE = ModuleFile(
    module="github.com/kedacore/http-add-on",
    version="v0.15.0",
    path="config/crd/bases/http.keda.sh_interceptorroutes.yaml",
)
INFERENCE_SERVICE = ModuleFile(
    module="github.com/kserve/kserve",
    version="v0.19.0",
    path="config/crd/full/serving.kserve.io_inferenceservices.yaml",
)
