"""What this machine must have to build images and run a cluster, and how a Debian machine gets it."""

import os
import platform
import shutil
from pathlib import Path
from typing import Final

from testbed.debian_programs import Tool, install
from testbed.kube.errors import MissingError

CNI_PLUGINS: Final = Path("/usr/lib/cni")
"""Where Debian's containernetworking-plugins puts them."""


_BUILDERS: Final = (
    Tool(program="buildah", package="buildah"),
    Tool(program="debootstrap", package="debootstrap"),
)
"""What makes the product's image."""
TOOLS: Final = (
    Tool(program="etcd", package="etcd-server"),
    Tool(program="containerd", package="containerd"),
    Tool(program="runc", package="runc"),
    Tool(program=str(CNI_PLUGINS / "bridge"), package="containernetworking-plugins"),
    Tool(program="iptables", package="iptables"),
    Tool(program="conntrack", package="conntrack"),
    Tool(program="ip", package="iproute2"),
    Tool(program="nsenter", package="util-linux"),
    *_BUILDERS,
    Tool(program="git", package="git"),
)


def require() -> None:
    """See to it that everything is there; packages are installed where this is Debian or Ubuntu.

    Raises:
        MissingError: with every reason why no cluster can run here.

    """
    if missing := _unfit() or install(TOOLS):
        way_out = "An existing cluster serves instead: set HVD_ELASTIC_E2E_KUBECONFIG to its kubeconfig."
        raise MissingError(f"no cluster can run here; {_listed(missing)}\n{way_out}")


def require_builders() -> None:
    """See to it that images can be built; packages are installed where this is Debian or Ubuntu.

    Raises:
        MissingError: with every reason why none can be built here.

    """
    if missing := _not_root("buildah and debootstrap") or install(_BUILDERS):
        raise MissingError(f"no image can be built here; {_listed(missing)}")


def _unfit() -> list[str]:
    if platform.system() != "Linux":
        return [f"Linux: this is {platform.system()}; its nodes are network namespaces and cgroups"]
    reasons = _not_root("containerd, network namespaces and cgroups")
    if shutil.which("go") is None:
        reasons.append("Go 1.26 or later (https://go.dev/dl): Kubernetes is built from its modules")
    if not Path("/sys/fs/cgroup").is_dir():
        reasons.append("a cgroup file system at /sys/fs/cgroup")
    return reasons


def _not_root(parts: str) -> list[str]:
    return [f"root: {parts} need it (try sudo -E)"] if os.geteuid() != 0 else []


def _listed(missing: list[str]) -> str:
    return "this is missing:\n" + "\n".join(f"  - {one}" for one in missing)
