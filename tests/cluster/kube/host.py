"""What this machine must have before a cluster can run on it, and how a Debian machine gets it."""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.kube.errors import MissingError

CNI_PLUGINS: Final = Path("/usr/lib/cni")
"""Where Debian's containernetworking-plugins puts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program, and the Debian package that has it."""

    program: str
    package: str

    def found(self) -> bool:
        """Tell whether it is there: on PATH, or at its absolute path."""
        return shutil.which(self.program) is not None


TOOLS: Final = (
    Tool(program="etcd", package="etcd-server"),
    Tool(program="containerd", package="containerd"),
    Tool(program="runc", package="runc"),
    Tool(program=str(CNI_PLUGINS / "bridge"), package="containernetworking-plugins"),
    Tool(program="iptables", package="iptables"),
    Tool(program="conntrack", package="conntrack"),
    Tool(program="ip", package="iproute2"),
    Tool(program="nsenter", package="util-linux"),
    Tool(program="buildah", package="buildah"),
    Tool(program="debootstrap", package="debootstrap"),
    Tool(program="git", package="git"),
)


def require() -> None:
    """See to it that everything is there; packages are installed where this is Debian or Ubuntu.

    Raises:
        MissingError: with every reason why no cluster can run here.

    """
    if blockers := [*_unfit()]:
        raise MissingError(_message(blockers))
    if absent := [tool for tool in TOOLS if not tool.found()]:
        _install(absent)


def _unfit() -> list[str]:
    reasons = []
    if platform.system() != "Linux":
        return [f"Linux: this is {platform.system()}; its nodes are network namespaces and cgroups"]
    if os.geteuid() != 0:
        reasons.append("root: containerd, network namespaces and cgroups need it (try sudo -E)")
    if shutil.which("go") is None:
        reasons.append("Go 1.26 or later (https://go.dev/dl): Kubernetes is built from its modules")
    if not Path("/sys/fs/cgroup").is_dir():
        reasons.append("a cgroup file system at /sys/fs/cgroup")
    return reasons


def _install(absent: list[Tool]) -> None:
    packages = sorted({tool.package for tool in absent})
    if shutil.which("apt-get") is None:
        raise MissingError(_message([f"{tool.program} (Debian package {tool.package})" for tool in absent]))
    # Debian starts etcd and containerd as services when it installs them, where there is an init; ours are their own.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for step in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *step], env=quiet, text=True, capture_output=True, check=False)
    if done.returncode:
        raise MissingError(_message([f"packages {' '.join(packages)}: apt-get says {done.stderr.strip()}"]))


def _message(reasons: list[str]) -> str:
    listed = "\n".join(f"  - {reason}" for reason in reasons)
    return (
        f"no cluster can run here; this is missing:\n{listed}\n"
        "An existing cluster serves instead: set HVD_ELASTIC_E2E_KUBECONFIG to its kubeconfig."
    )
