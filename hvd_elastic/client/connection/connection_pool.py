"""Kept-alive connections to one API server, over urllib3: TLS, client certificates, proxies."""

import os
import socket
import ssl
import tempfile
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.client.connection.cluster_errors import NotConfiguredError
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.proxy_environment import proxy_for
from hvd_elastic.system.tls import client_context

if TYPE_CHECKING:
    import urllib3

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
MOST_CONNECTIONS: Final = 32
"""Connections that are kept: more than any verb has open at a time."""
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A watch on a connection that has died in silence ends after a minute. Not every system has each of these."""


def open_pool(login: Login) -> "urllib3.PoolManager":
    """The pool of one login. It sends nothing yet. Raises NotConfiguredError for certificates that are none."""
    try:
        import urllib3
    except ImportError as error:
        raise NotConfiguredError("this needs the extra: pip install 'hvd-elastic[cluster]'") from error
    options: dict[str, Any] = {
        "maxsize": MOST_CONNECTIONS,
        "retries": False,
        "timeout": urllib3.Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS),
        "socket_options": _socket_options(),
    }
    if login.server.startswith("https:"):
        options["ssl_context"] = tls_context(login)
        if login.tls_server_name:
            options["server_hostname"] = login.tls_server_name
        if login.insecure:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    proxy = login.proxy or proxy_for(login.server, os.environ)
    if not proxy:
        return urllib3.PoolManager(**options)
    if not proxy.startswith(("http://", "https://")):
        raise NotConfiguredError(f"the proxy {proxy!r} is not an http or https proxy, and no other is supported")
    if (account := urllib3.util.parse_url(proxy).auth) is not None:
        options["proxy_headers"] = urllib3.util.make_headers(proxy_basic_auth=account)
    if proxy.startswith("https:"):
        options["proxy_ssl_context"] = client_context()
    return urllib3.ProxyManager(proxy, **options)


def tls_context(login: Login) -> ssl.SSLContext:
    """Whom to trust, and who asks. Raises NotConfiguredError."""
    try:
        context = client_context(cadata=login.certificate_authority or None)
        if login.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if login.client_certificate:
            _load_client(context, login)
    except (ssl.SSLError, ValueError) as error:
        raise NotConfiguredError(f"a certificate or a key of the kubeconfig is not usable: {error}") from error
    return context


def _load_client(context: ssl.SSLContext, login: Login) -> None:
    """OpenSSL takes a certificate with its key from a file only: one that just its owner may read, and only for now."""
    with tempfile.NamedTemporaryFile("w", encoding="ascii", suffix=".pem") as file:
        file.write(f"{login.client_certificate}\n{login.client_key}")
        file.flush()
        context.load_cert_chain(file.name)


def _socket_options() -> list[tuple[int, int, int]]:
    known = [(getattr(socket, name), value) for name, value in _KEEPALIVE if hasattr(socket, name)]
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *((socket.IPPROTO_TCP, option, value) for option, value in known),
    ]
