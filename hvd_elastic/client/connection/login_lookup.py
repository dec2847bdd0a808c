"""Who this process is for an API server: a pod's own account, or who the kubeconfig says."""

import os
from urllib.parse import urlsplit

from hvd_elastic.client.connection.cluster_errors import NotConfiguredError
from hvd_elastic.client.connection.connection_pool import tls_context
from hvd_elastic.client.connection.kubeconfig import kubeconfig_paths, login_of, read_kubeconfig
from hvd_elastic.client.connection.login import Login, pod_login
from hvd_elastic.discovery.kube.api_server import Access
from hvd_elastic.discovery.kube.credentials import SERVICE_ACCOUNT


def log_in(context: str | None) -> Login:
    """The caller of this process: a pod's own account, or who the kubeconfig says.

    A pod's own account counts only if no context is named and there is no KUBECONFIG. Sends nothing, unless the
    kubeconfig names a program that logs in. Raises NotConfiguredError.
    """
    if context is None and "KUBECONFIG" not in os.environ and (SERVICE_ACCOUNT / "token").exists():
        return pod_login()
    paths = kubeconfig_paths()
    try:
        config = read_kubeconfig(paths)
        chosen = config.choose(context)
        if not chosen.needs_plugin:
            return login_of(chosen)
    except NotConfiguredError as error:
        raise NotConfiguredError(f"no cluster to talk to: {error}: set KUBECONFIG, or name a --context") from error
    from hvd_elastic.client.connection.login_plugins import plugin_login

    return plugin_login(chosen, paths)


def discovery_access(context: str | None = None) -> tuple[Access, str]:
    """The same caller as discovery's own connection takes it, and the namespace. Raises NotConfiguredError.

    That connection uses no proxy, and impersonates nobody.
    """
    login = log_in(context)
    address = urlsplit(login.server)
    plain = address.scheme == "http"
    access = Access(
        host=address.hostname or "localhost",
        port=address.port or (80 if plain else 443),
        tls=None if plain else lambda: tls_context(login),
        token=lambda: login.authorization().removeprefix("Bearer "),
        prefix=address.path,
    )
    return access, login.namespace
