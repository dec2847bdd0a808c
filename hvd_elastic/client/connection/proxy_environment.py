"""Which proxy the environment names for a server, as Go's programs read it (`golang.org/x/net/http/httpproxy`)."""

import ipaddress
import re
from collections.abc import Container, Mapping
from typing import Final
from urllib.parse import urlsplit

_WITH_PORT: Final = re.compile(r"(?P<name>\[.*\]|[^:]*):(?P<port>\d+)")


def proxy_for(server: str, environ: Mapping[str, str]) -> str:
    """The proxy's URL; empty if the server is reached directly. This machine's own addresses always are."""
    address = urlsplit(server)
    name = f"{address.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    host = address.hostname or ""
    if not proxy or _is_loopback(host) or _is_excluded(host, address.port, _words(environ)):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _words(environ: Mapping[str, str]) -> list[str]:
    listed = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    return [word.strip().lower() for word in listed.split(",") if word.strip()]


def _is_loopback(host: str) -> bool:
    ip = _ip(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def _is_excluded(host: str, port: int | None, words: list[str]) -> bool:
    """`*`, an address, a range of addresses, a domain with what is below it; each of them may end with a port."""
    return any(_matches(word, host, port) for word in words)


def _matches(word: str, host: str, port: int | None) -> bool:
    if word == "*":
        return True
    ip = _ip(host)
    if ip is not None and "/" in word:
        return ip in _network(word)
    if with_port := _WITH_PORT.fullmatch(word):
        if with_port["port"] != str(port or 443):
            return False
        word = with_port["name"].strip("[]")
    if ip is not None:
        return ip == _ip(word)
    below = "." + word.removeprefix("*").lstrip(".")
    return host.endswith(below) or (not word.startswith((".", "*")) and host == word)


def _network(word: str) -> Container[object]:
    try:
        return ipaddress.ip_network(word, strict=False)
    except ValueError:
        return ()


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
