"""The port belongs to the entry point from before the script runs, and is open only while the worker is usable."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from hvd_elastic.worker.event_loop import EventLoop
from hvd_elastic.worker.ready_port import ReadyPort
from tests.hvd_elastic.worker.pods import Yard, fresh_address
from tests.hvd_elastic.worker.test_adoption import WAITER


class Served:
    def __init__(self, address: str | None) -> None:
        self.loop = EventLoop()
        self.address = address or "127.0.0.1"
        with socket.create_server((self.address, 0)) as free:
            self.number: int = free.getsockname()[1]
        self.port = ReadyPort(
            self.loop, address=address, port=self.number, answer=lambda: b"here\n", on_request=lambda _verb, _rest: b""
        )

    def answer(self) -> bytes | None:
        """What a client reads; None where it is refused."""
        found: list[bytes | None] = []
        client = threading.Thread(target=lambda: found.append(self._ask()))
        client.start()
        while client.is_alive():
            self.loop.after(0.01, lambda: None)
            self.loop.turn()
        return found[0]

    def _ask(self) -> bytes | None:
        try:
            with socket.create_connection((self.address, self.number), timeout=20) as connection:
                return connection.makefile("rb").readline()
        except ConnectionRefusedError:
            return None

    def is_free(self) -> bool:
        """Whether another process could take the port, in any of the ways that servers do."""
        for address in (self.address, ""):
            for reuse in (0, 1):
                with socket.socket() as stranger:
                    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
                    with contextlib.suppress(OSError):
                        stranger.bind((address, self.number))
                        return True
        return False


@pytest.fixture(params=["one address", "all"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    made = Served(fresh_address() if request.param == "one address" else None)
    yield made
    made.port.release()
    made.loop.close()


def test_nobody_can_take_the_port_whether_it_is_open_or_not(served: Served) -> None:
    assert served.is_free()
    served.port.reserve()
    for _ in range(3):
        assert (served.answer(), served.is_free()) == (None, False)
        served.port.open()
        assert (served.answer(), served.is_free()) == (b"here\n", False)
        with socket.create_connection((served.address, served.number)):  # a connection that lingers
            served.loop.turn()
            served.port.close()
    served.port.release()
    # What lingers keeps others out who do not share it, and not the next entry point.
    served.port.reserve()
    served.port.open()
    assert served.answer() == b"here\n"


@pytest.mark.process
def test_a_script_cannot_stand_where_the_worker_is_looked_for(yard: Yard) -> None:
    yard.write(
        "import os, socket\n"
        "server = socket.socket()\n"
        "server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "try:\n"
        "    server.bind((os.environ['HVD_ELASTIC_READY_ADDRESS'], 2223))\n"
        "except OSError as error:\n"
        "    print('refused', flush=True)\n" + WAITER
    )
    with yard.pod() as pod:
        pod.ready()
        assert "refused" in pod.log_text
