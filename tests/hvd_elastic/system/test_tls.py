"""Certificates that Python 3.13 alone would refuse."""

import socket
import ssl
import threading
from pathlib import Path

import pytest

from hvd_elastic.system.tls import client_context
from testbed.kube.certificates import Authority

pytestmark = pytest.mark.distribution


def test_an_authority_without_key_identifiers_and_key_usage_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.create(tmp_path / "keys")
    pair = authority.issue("server", "server", answers_to=["kubernetes"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    ours, theirs = socket.socketpair()
    default = ssl.create_default_context

    def strict(*, cafile: Path | None, cadata: str | None) -> ssl.SSLContext:
        """As Python 3.13 makes it, on every Python."""
        context = default(cafile=cafile, cadata=cadata)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    context = client_context(cafile=authority.root)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as answer:
            answer.sendall(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    with context.wrap_socket(ours, server_hostname="kubernetes") as question:
        assert question.recv(5) == b"hello"
    thread.join()


def test_nothing_else_makes_contexts() -> None:
    """Another context would be strict from Python 3.13 on."""
    root = Path(__file__).parents[3]
    folders = [root / name for name in ("hvd_elastic", "trainer", "discovery", "mpijob", "priorityclasses")]
    words = ("create_default_context", "create_urllib3_context", "ca_certs", "SSLContext(")
    makers = {
        path.relative_to(root).as_posix()
        for folder in folders
        for path in folder.rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in words)
    }
    assert makers == {"hvd_elastic/system/tls.py"}
