"""How to log in to the API server: with a pod's service account, or with a person's kubeconfig."""

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

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
        tls=_tls_with_ca(folder / "ca.crt"),
        token=lambda: token.read_text(encoding="ascii").strip(),
    )


def own_namespace(folder: Path = SERVICE_ACCOUNT) -> str | None:
    """The pod's namespace; None outside a pod."""
    path = folder / "namespace"
    return path.read_text(encoding="ascii").strip() if path.exists() else None


def kubeconfig(context: str | None = None) -> tuple[Access, str]:
    """A person's cluster and namespace, read by the `kubernetes` package, which knows every way to log in.

    Raises NoClusterError if there is no usable kubeconfig, or the package is missing.
    """
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise NoClusterError("reading a kubeconfig needs the extra: pip install 'hvd-elastic[cluster]'") from error
    settings = client.Configuration()
    try:
        config.load_kube_config(client_configuration=settings, context=context)
        contexts, active = config.list_kube_config_contexts()
    except (config.ConfigException, OSError) as error:
        raise NoClusterError(f"no usable kubeconfig: {error}") from error
    chosen = next((entry for entry in contexts if entry["name"] == context), active)
    return _from_configuration(settings), str(chosen["context"].get("namespace") or "default")


def _from_configuration(settings: Any) -> Access:
    address = urlsplit(settings.host)
    plain = address.scheme == "http"
    return Access(
        host=address.hostname or "localhost",
        port=address.port or (80 if plain else 443),
        tls=None if plain else lambda: _personal_tls(settings),
        token=lambda: _bearer_token(settings),
        prefix=address.path.rstrip("/"),
    )


def _personal_tls(settings: Any) -> ssl.SSLContext:
    context = _tls_with_ca(settings.ssl_ca_cert)()
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context


def _bearer_token(settings: Any) -> str | None:
    # Through `auth_settings`: the token's own key changed from release to release.
    header = settings.auth_settings().get("BearerToken", {}).get("value")
    return str(header).removeprefix("Bearer ") if header else None


def _tls_with_ca(ca: Path | str | None) -> Callable[[], ssl.SSLContext]:
    return lambda: client_context(cafile=ca)
