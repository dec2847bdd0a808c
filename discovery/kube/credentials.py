"""How a pod logs in to the API server: with its service account. For people, `client.connection` looks up a login."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.kube.api_server import Access
from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.system.tls import client_context

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoClusterError(HvdElasticError):
    """No cluster is configured here."""

    exit_code = Exit.BAD_INPUT


def in_cluster(environ: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Access:
    """The pod's own service account. Raises NoClusterError outside a pod, or in one that mounts no token.

    The token's file is read for each request, because the kubelet replaces it before the token expires.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = folder / "token"
    if not host or not token.exists():
        raise NoClusterError(
            f"not in a pod with a service account: KUBERNETES_SERVICE_HOST is {host!r} and {token} "
            f"{'exists' if token.exists() else 'does not exist'}"
        )
    return Access(
        host=host,
        port=int(port),
        tls=lambda: client_context(cafile=folder / "ca.crt"),
        token=lambda: token.read_text(encoding="ascii").strip(),
    )


def own_namespace(folder: Path = SERVICE_ACCOUNT) -> str | None:
    """The pod's namespace; None outside a pod."""
    path = folder / "namespace"
    return path.read_text(encoding="ascii").strip() if path.exists() else None
