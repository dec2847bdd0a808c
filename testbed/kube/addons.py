"""What runs on top of the control plane: DNS, the MPI Operator, and on request the enforcement of policies.

Each is a process of this machine under the service account and the roles that it has in any cluster: none holds an
administrator's rights.
"""

import contextlib
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.kube import firewall, gomodules, waiting
from testbed.kube.controlplane import ControlPlane
from testbed.kube.daemons import Daemon
from testbed.kube.errors import ClusterError
from testbed.kube.images import PROJECT
from testbed.kube.kubectl import Kubectl

_TOKEN_LIFE: Final = "24h"
_DNS_ROLE: Final[dict[str, Any]] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "system:coredns"},
    "rules": [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ],
}
_POLICIES: Final = "network-policies"
_POLICIES_ROLE: Final[dict[str, Any]] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": _POLICIES},
    "rules": [
        {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
    ],
}


def start_dns(plane: ControlPlane, kubectl: Kubectl) -> None:
    """Start CoreDNS on this machine's end of the bridge; the nodes translate the service address to it."""
    kubectl.apply([account("kube-system", "coredns"), _DNS_ROLE, binding("kube-system", "coredns", "system:coredns")])
    kubeconfig = as_account(plane, kubectl, "kube-system", "coredns")
    corefile = plane.state / "Corefile"
    corefile.write_text(
        f".:{plane.dns_port} {{\n  bind {plane.subnets.gateway}\n  errors\n"
        f"  kubernetes cluster.local in-addr.arpa ip6.arpa {{\n    kubeconfig {kubeconfig}\n    ttl 1\n  }}\n}}\n"
    )
    program = gomodules.binaries(gomodules.DNS_KWOK) / "coredns"
    plane.daemon("coredns", str(program), "-conf", str(corefile)).start()


def start_mpi_operator(plane: ControlPlane, kubectl: Kubectl, *, netns: str) -> None:
    """Apply the operator's own manifests but its Deployment, and run it as its service account.

    It listens on port 8080 and cannot be told otherwise: in a node's network namespace nobody else has that.
    """
    built = gomodules.binaries(gomodules.mpi_operator(plane.mpi_operator))
    kubectl.apply([item for item in _manifests(built) if item["kind"] != "Deployment"])
    kubeconfig = as_account(plane, kubectl, "mpi-operator", "mpi-operator")
    program = str(built / "mpi-operator")
    # The default of 5 requests a second makes one job wait for another's thousand pods.
    pace = ("-kube-api-qps=50", "-kube-api-burst=100")
    command = (program, f"-kubeConfig={kubeconfig}", "-lock-namespace=mpi-operator", *pace)
    plane.daemon("mpi-operator", *command, netns=netns, comes_back=True).start()
    kubectl.wait("customresourcedefinition", "mpijobs.kubeflow.org", condition="Established", within_seconds=30)


def wait_mpi_operator(kubectl: Kubectl) -> None:
    """Wait until the operator leads: from then on it takes jobs up."""
    operators = kubectl.within("mpi-operator")
    waiting.until("the MPI Operator leads", lambda: operators.list("lease"), within_seconds=60)


def _manifests(built: Path) -> Iterator[dict[str, Any]]:
    file = built / "source" / "deploy" / "v2beta1" / "mpi-operator.yaml"
    yield from (item for item in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader) if item)


def start_policies(plane: ControlPlane, kubectl: Kubectl, *, nodes: Mapping[str, str]) -> Daemon:
    """Enforce NetworkPolicies on nodes (name to network namespace) from now on; returns the process that does."""
    kubectl.apply([account("kube-system", _POLICIES), _POLICIES_ROLE, binding("kube-system", _POLICIES, _POLICIES)])
    kubeconfig = as_account(plane, kubectl, "kube-system", _POLICIES)
    pairs = [f"{node}={netns}" for node, netns in nodes.items()]
    described = plane.daemon(_POLICIES, sys.executable, "-m", firewall.__name__, str(kubeconfig), *pairs)
    engine = replace(described, env={"PYTHONPATH": str(PROJECT)})
    engine.stop()  # one that a killed run of the tests left
    engine.start()
    return engine


def stop_policies(plane: ControlPlane, *, nodes: Mapping[str, str]) -> None:
    """Enforce none any more."""
    Daemon.load(plane.state, _POLICIES).end()
    for netns in nodes.values():
        firewall.clear(netns)


def as_account(plane: ControlPlane, kubectl: Kubectl, namespace: str, account: str) -> Path:
    """Return a kubeconfig with a token of a service account, which the controllers may still be making."""
    create = ("create", "token", account, f"--duration={_TOKEN_LIFE}")
    scope = kubectl.within(namespace)

    def token() -> str:
        try:
            return scope(*create).strip()
        except ClusterError:
            return ""

    return plane.kubeconfig(account, waiting.until(f"a token of {account}", token, within_seconds=20))


def account(namespace: str, name: str) -> dict[str, Any]:
    """Describe a service account."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def binding(namespace: str, account: str, role: str) -> dict[str, Any]:
    """Describe what gives it a role in the whole cluster."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def with_folder_at(path: str, folder: Path) -> Sequence[str]:
    """What goes before a command line, so that its program finds the folder in the place of `path`, and no other."""
    return ("unshare", "--mount", "sh", "-c", f'mount --bind "$0" {path} && exec "$@"', str(folder))


def wait_answering(daemon: Daemon, url: str, *, within_seconds: float = 120) -> None:
    """Wait until a process answers with a success. Raises DeadlineError, or ClusterError if it has ended."""

    def answers() -> bool:
        daemon.require_alive()
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return True
        return False

    waiting.until(f"{daemon.name} answers", answers, within_seconds=within_seconds, seen=daemon.tail)
