"""How to be let in: the service account of a pod, or a person's kubeconfig."""

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from hvd_elastic.discovery.kube.api_server import Access
from hvd_elastic.mpijob.contract import Exit, HvdElasticError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoClusterError(HvdElasticError):
    """Nothing here says where a cluster is."""

    exit_code = Exit.BAD_INPUT


def in_cluster(environ: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Access:
    """The pod's own service account. Raises NoClusterError outside of a pod, or in one that mounts no token.

    The kubelet replaces the token's file before it runs out, so it is read for each request.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = folder / "token"
    if not host or not token.exists():
        raise NoClusterError(
            f"not in a pod with a service account: KUBERNETES_SERVICE_HOST is {host!r} and {token} "
            f"{'is' if token.exists() else 'is not'} there"
        )
    return Access(
        host=host,
        port=int(port),
        tls=_trusting(folder / "ca.crt"),
        token=lambda: token.read_text(encoding="ascii").strip(),
    )


def own_namespace(folder: Path = SERVICE_ACCOUNT) -> str | None:
    """The pod's namespace; None outside of a pod."""
    path = folder / "namespace"
    return path.read_text(encoding="ascii").strip() if path.exists() else None


def kubeconfig(context: str | None = None) -> tuple[Access, str]:
    """A person's cluster and namespace, by the `kubernetes` package: it knows every way to log in.

    Raises NoClusterError where there is no usable kubeconfig, or no such package.
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
        tls=None if plain else lambda: _personal(settings),
        token=lambda: _bearer(settings),
        prefix=address.path.rstrip("/"),
    )


def _personal(settings: Any) -> ssl.SSLContext:
    context = _trusting(settings.ssl_ca_cert)()
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context


def _bearer(settings: Any) -> str | None:
    # By way of `auth_settings`: the token's own name there changed from release to release.
    header = settings.auth_settings().get("BearerToken", {}).get("value")
    return str(header).removeprefix("Bearer ") if header else None


def _trusting(ca: Path | str | None) -> Callable[[], ssl.SSLContext]:
    def context() -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=ca)
        # Many clusters' CAs lack the key identifiers that Python 3.13 asks for by default.
        made.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return made

    return context
