"""How one caller reaches one API server: its address, whom to trust, and what it shows. `login_lookup` finds it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from hvd_elastic.client.connection.cluster_errors import NotConfiguredError
from hvd_elastic.discovery.kube.credentials import SERVICE_ACCOUNT, own_namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Everything that a connection needs, as values: no file of a kubeconfig is read after this."""

    server: str
    """`https://HOST:PORT`, and a path before `/api` for some proxies."""
    context: str = ""
    """Of the kubeconfig. Empty: it is a pod's own account."""
    namespace: str = "default"
    """The context's namespace, or the pod's."""
    certificate_authority: str = ""
    """PEM. Empty: the system's authorities."""
    client_certificate: str = ""
    client_key: str = field(default="", repr=False)
    """PEM. Empty: none."""
    authorization: Callable[[], str] = field(default=lambda: "", repr=False)
    """The header's value, asked for each request, because tokens expire; empty: none. Any thread may call it."""
    tls_server_name: str = ""
    """The name in the server's certificate, if it is not the address's."""
    insecure: bool = False
    """Trust any server."""
    proxy: str = ""
    """URL. Empty: what the environment says (HTTPS_PROXY, HTTP_PROXY, NO_PROXY)."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers. One name may come several times (`Impersonate-Group`)."""


def pod_login() -> Login:
    """A pod's own service account. Raises NotConfiguredError outside a pod.

    The token's file is read for each request, because the kubelet replaces it before the token expires.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NotConfiguredError(f"{SERVICE_ACCOUNT} has a token, and KUBERNETES_SERVICE_HOST is not set")
    token = SERVICE_ACCOUNT / "token"
    return Login(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=own_namespace() or "default",
        certificate_authority=(SERVICE_ACCOUNT / "ca.crt").read_text(encoding="ascii"),
        authorization=lambda: f"Bearer {token.read_text(encoding='ascii').strip()}",
    )
