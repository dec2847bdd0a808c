"""etcd, the API server, the controller manager and the scheduler, as processes of this machine."""

import contextlib
import socket
import ssl
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.kube import certificates, gomodules, waiting
from testbed.kube.certificates import Authority
from testbed.kube.daemons import Daemon
from testbed.kube.folders import NAME
from testbed.kube.network import Subnets, in_url

CGROUP: Final = f"{NAME}-kube"
"""All processes of the cluster, its pods included, are in this cgroup or below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """Where the parts are, and who may speak to them."""

    state: Path
    subnets: Subnets
    api_port: int
    etcd_ports: tuple[int, int]
    """For clients and for peers, on the loopback interface."""
    dns_port: int
    kubernetes: str
    """Version (`gomodules.VERSIONS`), as the operator's."""
    mpi_operator: str

    @property
    def server(self) -> str:
        """URL of the API server, from this machine and from every node."""
        return f"https://{in_url(self.subnets.gateway)}:{self.api_port}"

    @property
    def programs(self) -> Path:
        """Folder of Kubernetes' own programs."""
        return gomodules.binaries(gomodules.kubernetes(self.kubernetes))

    @property
    def keys(self) -> Path:
        """Folder of certificates and keys."""
        return self.state / "keys"

    @property
    def admin(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state / "admin.kubeconfig"

    def daemon(self, name: str, *argv: str, netns: str | None = None, comes_back: bool = False) -> Daemon:
        """Describe a process of the cluster."""
        cgroup = f"{CGROUP}/daemons/{name}"
        return Daemon(name=name, argv=argv, state=str(self.state), cgroup=cgroup, netns=netns, comes_back=comes_back)

    def kubeconfig(self, name: str, user: certificates.Pair | str) -> Path:
        """Write a kubeconfig into the state folder."""
        file = self.state / f"{name}.kubeconfig"
        return certificates.kubeconfig(file, server=self.server, root=self.keys / "ca.crt", user=user)


def plan(state: Path, subnets: Subnets) -> ControlPlane:
    """Choose ports that nobody listens on now, and the versions that are asked for."""
    api, other = free_ports(subnets.gateway, 2)
    # NetworkPolicies see the port behind a service, and admit DNS on its own: another one only where that is taken.
    dns = 53 if _free(subnets.gateway, 53) else other
    etcd = free_ports("127.0.0.1", 2)
    return ControlPlane(
        state=state,
        subnets=subnets,
        api_port=api,
        etcd_ports=(etcd[0], etcd[1]),
        dns_port=dns,
        kubernetes=gomodules.chosen("kubernetes"),
        mpi_operator=gomodules.chosen("mpi-operator"),
    )


def free_ports(address: str, count: int) -> list[int]:
    """Return ports on which nobody listens at the address (TCP and UDP), outside the range given to clients."""
    found: list[int] = []
    for port in range(16443, 32000):
        if len(found) < count and _free(address, port):
            found.append(port)
    return found


def start(plane: ControlPlane, authority: Authority) -> None:
    """Start all four; the API server answers `ready` when this returns."""
    _credentials(plane, authority)
    _etcd(plane).start()
    api_server(plane).start()
    wait_ready(plane)
    _controller_manager(plane).start()
    _scheduler(plane).start()


def wait_ready(plane: ControlPlane, *, within_seconds: float = 60) -> None:
    """Wait until the API server says that it is ready; its log is the message if it never does."""
    context = _trusting(plane.keys / "ca.crt")
    server = Daemon.load(plane.state, "kube-apiserver")

    def ready() -> bool:
        server.require_alive()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{plane.server}/readyz", context=context, timeout=2):
            return True
        return False

    waiting.until("the API server is ready", ready, within_seconds=within_seconds, seen=server.tail)


def certify_api_server(plane: ControlPlane, authority: Authority) -> None:
    """Write a certificate that the API server shows, a new one each time."""
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    addresses = (plane.subnets.api_service, plane.subnets.gateway)
    authority.issue("apiserver", "kube-apiserver", answers_to=(*names, *addresses))


def _credentials(plane: ControlPlane, authority: Authority) -> None:
    certify_api_server(plane, authority)
    certificates.signing_keys(plane.keys)
    admin = authority.issue("admin", "admin", groups=("system:masters",))
    certificates.kubeconfig(plane.admin, server=plane.server, root=authority.root, user=admin)
    for part in ("kube-controller-manager", "kube-scheduler"):
        plane.kubeconfig(part, authority.issue(part, f"system:{part}"))


def _etcd(plane: ControlPlane) -> Daemon:
    client, peer = (f"http://127.0.0.1:{port}" for port in plane.etcd_ports)
    return plane.daemon(
        "etcd",
        "etcd",
        f"--data-dir={plane.state}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # a test's data need not outlive the machine
    )


def api_server(plane: ControlPlane) -> Daemon:
    """Describe the API server."""
    keys = plane.keys
    return plane.daemon(
        "kube-apiserver",
        str(plane.programs / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{plane.etcd_ports[0]}",
        f"--bind-address={plane.subnets.gateway}",
        f"--advertise-address={plane.subnets.gateway}",
        f"--secure-port={plane.api_port}",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt",
        f"--service-account-key-file={keys}/sa.pub",
        f"--service-account-signing-key-file={keys}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={plane.subnets.services}",
        f"--kubelet-client-certificate={keys}/admin.crt",
        f"--kubelet-client-key={keys}/admin.key",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",  # so that no line is needed in /etc/hosts
        "--allow-privileged",
        # It takes a watch from version 0 for a list, as kwok begins one, and the etcd of Debian 12 (3.4.23) cannot tell
        # the end of such a list: kwok's watches would end at once, and it would list pods each half minute instead.
        "--feature-gates=WatchList=false",
    )


def _controller_manager(plane: ControlPlane) -> Daemon:
    keys = plane.keys
    return plane.daemon(
        "kube-controller-manager",
        str(plane.programs / "kube-controller-manager"),
        f"--kubeconfig={plane.state}/kube-controller-manager.kubeconfig",
        f"--service-account-private-key-file={keys}/sa.key",
        f"--root-ca-file={keys}/ca.crt",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
        # A claim that is seen before its volume is looked at again after so long: 15 s by default.
        "--pvclaimbinder-sync-period=1s",
        comes_back=True,
    )


def _scheduler(plane: ControlPlane) -> Daemon:
    kubeconfig = f"--kubeconfig={plane.state}/kube-scheduler.kubeconfig"
    program = str(plane.programs / "kube-scheduler")
    # As its static pod would: it ends when it has missed news while the API server was away, and sees a pod on another
    # node than it had (`pkg/scheduler/backend/cache/cache.go`, "Scheduler cache is corrupted").
    return plane.daemon(
        "kube-scheduler", program, kubeconfig, "--leader-elect=false", "--secure-port=0", comes_back=True
    )


def _trusting(root: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(root))


def _free(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
