"""Horovod's own requests to the rendezvous server show the job's token: those of C++ and those of Python."""

import pytest
from horovod.runner.http.http_client import put_data_into_kvstore, read_data_from_kvstore
from horovod.runner.http.http_server import RendezvousHandler, RendezvousServer

from tests.trainer.elastic.bare_world import bare_world, ends

TOKEN = "HOROVOD_RENDEZVOUS_TOKEN"


class Seen(RendezvousHandler):  # type: ignore[misc]
    """The stock server's answers. It keeps the token that each request shows; None for a request without one."""

    tokens: dict[str, set[str | None]]

    def parse_request(self) -> bool:
        parsed: bool = super().parse_request()
        self.tokens.setdefault(self.command, set()).add(self.headers["X-Horovod-Token"])
        return parsed


@pytest.fixture
def seen() -> type[Seen]:
    return type("SeenOnce", (Seen,), {"tokens": {}})


@pytest.mark.core
@pytest.mark.process
@pytest.mark.needs_patch("rendezvous-token")
def test_every_request_of_cpp_shows_the_token(seen: type[Seen]) -> None:
    with bare_world("form", 2, handler=seen, **{TOKEN: "a word"}) as processes:
        assert [ends(process)[0] for process in processes] == [0, 0]
    assert seen.tokens == {"GET": {"a word"}, "PUT": {"a word"}, "DELETE": {"a word"}}


@pytest.mark.process
def test_without_a_token_cpp_shows_none(seen: type[Seen]) -> None:
    with bare_world("form", 2, handler=seen, **{TOKEN: ""}) as processes:
        assert [ends(process)[0] for process in processes] == [0, 0]
    assert seen.tokens == {"GET": {None}, "PUT": {None}, "DELETE": {None}}


def shown_by_python(seen: type[Seen]) -> dict[str, set[str | None]]:
    """The tokens of a PUT and a GET."""
    server = RendezvousServer()
    port = server.start(seen)
    try:
        put_data_into_kvstore("127.0.0.1", port, "scope", "key", 7)
        assert read_data_from_kvstore("127.0.0.1", port, "scope", "key") == 7
    finally:
        server.stop()
        server._httpd.server_close()
    return seen.tokens


@pytest.mark.needs_patch("rendezvous-token")
def test_pythons_client_shows_the_token(seen: type[Seen], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "a word")
    assert shown_by_python(seen) == {"GET": {"a word"}, "PUT": {"a word"}}


@pytest.mark.parametrize("token", ["", None])
def test_without_a_token_python_shows_none(
    seen: type[Seen], monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    if token is not None:
        monkeypatch.setenv(TOKEN, token)
    assert shown_by_python(seen) == {"GET": {None}, "PUT": {None}}
