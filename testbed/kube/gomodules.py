"""The Kubernetes programs, built from pinned Go modules and kept in the cache."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from testbed.kube import folders
from testbed.kube.errors import ClusterError

SOURCES: Final = Path(__file__).parent / "go"
PATCHES: Final = Path(__file__).parent / "patches"
VERSIONS: Final = {
    "kubernetes": ("1.37.2", "1.36.5"),
    "mpi-operator": ("0.8.2", "0.7.0", "0.6.0"),
    "kueue": ("0.19.2", "0.14.8"),
}
"""What is built in more than one version, newest first: the first of each is what runs unless another is asked for.

The go.mod of a version is in the folder of its minor: `kubernetes-1.37`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSet:
    """A go.mod of ours and what is built from it. Parts that need other versions of libraries stand apart."""

    name: str
    packages: tuple[str, ...]
    ldflags: str = "-s -w"
    module: str | None = None
    """A module whose source the cluster reads as well (manifests)."""
    patches: Path | None = field(default=None, repr=False)
    """A folder with what is changed in the source of `module`; None: nothing."""

    @property
    def folder(self) -> Path:
        """Where its go.mod and go.sum lie."""
        return SOURCES / self.name


def chosen(name: str, default: str | None = None) -> str:
    """Return the version of `name` (VERSIONS) that HVD_ELASTIC_KUBERNETES=1.36 and its like ask for.

    `default`: which one, where nothing is asked for; the newest if it is None.

    Raises:
        ClusterError: there is no such version.

    """
    variable = f"HVD_ELASTIC_{name.replace('-', '_').upper()}"
    asked = os.environ.get(variable) or default or VERSIONS[name][0]
    for version in VERSIONS[name]:
        if f"{version}.".startswith(f"{asked}."):
            return version
    raise ClusterError(f"{variable}={asked}: the test cluster has {name} {', '.join(VERSIONS[name])}")


def kubernetes(version: str) -> ModuleSet:
    """Return what makes a cluster of `version` (VERSIONS), and its kubectl."""
    major, minor, _ = version.split(".")
    told = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    flags = (f"-X k8s.io/component-base/version.{key}={value}" for key, value in told.items())
    return ModuleSet(
        name=_of_minor("kubernetes", version),
        packages=tuple(
            f"k8s.io/kubernetes/cmd/{program}"
            for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
        ),
        ldflags=" ".join(("-s -w", *flags)),
    )


def mpi_operator(version: str) -> ModuleSet:
    """Return the MPI Operator of `version` (VERSIONS)."""
    return ModuleSet(
        name=_of_minor("mpi-operator", version),
        packages=("github.com/kubeflow/mpi-operator/cmd/mpi-operator",),
        module="github.com/kubeflow/mpi-operator",
    )


def kueue(version: str) -> ModuleSet:
    """Return the Kueue of `version` (VERSIONS). Built for the tests that ask for it."""
    return ModuleSet(
        name=_of_minor("kueue", version),
        packages=("sigs.k8s.io/kueue/cmd/kueue",),
        module="sigs.k8s.io/kueue",
    )


def _of_minor(name: str, version: str) -> str:
    return f"{name}-{version.rpartition('.')[0]}"


PATCHED_MPI_OPERATOR: Final = replace(mpi_operator("0.8.2"), patches=PATCHES / "mpi-operator")
"""Built for the tests that ask for it. Its README says what is different."""
TRAINING_OPERATOR: Final = ModuleSet(
    name="training-operator",
    packages=("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
    module="github.com/kubeflow/training-operator",
)
"""Built for the tests that ask for it, not by `up`: it owns the name of the MPI Operator's CRD as well."""
KUBEFLOW_TRAINER: Final = ModuleSet(
    name="kubeflow-trainer",
    packages=("github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",),
    module="github.com/kubeflow/trainer/v2",
)
JOBSET: Final = ModuleSet(name="jobset", packages=("sigs.k8s.io/jobset",), module="sigs.k8s.io/jobset")
DNS_KWOK: Final = ModuleSet(
    name="dns-kwok",
    packages=("github.com/coredns/coredns", "sigs.k8s.io/kwok/cmd/kwok"),
    module="sigs.k8s.io/kwok",
)
PAUSE: Final = ModuleSet(name="pause", packages=("hvd-elastic.test/pause",))
KUBECTL_DELIVERY: Final = ModuleSet(name="kubectl-delivery", packages=("hvd-elastic.test/kubectl-delivery",))


def binaries(modules: ModuleSet) -> Path:
    """Return the folder with the programs of `modules`, built now if they are not in the cache.

    Raises:
        ClusterError: the build failed; the message ends with Go's last lines.

    """
    kept = folders.cache() / "go" / f"{modules.name}-{_key(modules)}"
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            made = Path(scratch) / "bin"
            _build(modules, made)
            made.rename(kept)
    return kept


def _build(modules: ModuleSet, out: Path) -> None:
    out.mkdir()
    # -mod=readonly: exactly what go.sum vouches for.
    flags = ["-mod=readonly", "-trimpath", f"-ldflags={modules.ldflags}", "-o", f"{out}/"]
    with _patched(modules) as changed:
        _go(modules, "build", *flags, *changed, *modules.packages)
    if modules.module:
        shutil.copytree(_source(modules), out / "source", ignore=shutil.ignore_patterns("sdk", "*.go"))


@contextmanager
def _patched(modules: ModuleSet) -> Iterator[list[str]]:
    """Flags of `go build` that put a patched copy in the place of the module. Raises ClusterError if one is unfit."""
    if not modules.patches:
        yield []
        return
    with tempfile.TemporaryDirectory() as scratch:
        source, mod = Path(scratch) / "source", Path(scratch) / "go.mod"
        shutil.copytree(_source(modules), source)
        subprocess.run(["chmod", "-R", "u+w", source], check=True)  # the module cache is read-only
        for patch in sorted(modules.patches.glob("*.patch")):
            command = ["patch", "-p1", "--batch", "--fuzz=0", "-i", str(patch)]
            done = subprocess.run(command, cwd=source, text=True, capture_output=True, check=False)
            if done.returncode:
                raise ClusterError(f"{patch.name} does not fit {modules.module}:\n{done.stdout}{done.stderr}")
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(modules.folder / name, mod.with_name(name))
        with mod.open("a") as file:
            file.write(f"\nreplace {modules.module} => {source}\n")
        yield [f"-modfile={mod}"]


def _source(modules: ModuleSet) -> str:
    return _go(modules, "list", "-m", "-f", "{{.Dir}}", modules.module or "").strip()


def _go(modules: ModuleSet, *arguments: str) -> str:
    done = subprocess.run(["go", *arguments], cwd=modules.folder, text=True, capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(f"go {arguments[0]} of {modules.name} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _key(modules: ModuleSet) -> str:
    version = subprocess.run(["go", "env", "GOVERSION"], text=True, capture_output=True, check=True).stdout
    digest = hashlib.sha256(repr((version, modules)).encode())
    changes = modules.patches.glob("*.patch") if modules.patches else ()
    for file in [*sorted(modules.folder.iterdir()), *sorted(changes)]:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]
