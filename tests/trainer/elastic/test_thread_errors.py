"""An error that nobody has foreseen, in each thread beside training: it is said, and the thread's work goes on."""

import socket
import threading
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import ENV_RENDEZVOUS_ADDRESS
from hvd_elastic.trainer.elastic.mistakes.early_end import EarlyEnd
from hvd_elastic.trainer.elastic.stalls import stall_watch
from hvd_elastic.trainer.elastic.stalls.stall_watch import StallWatch
from hvd_elastic.trainer.elastic.world import gloo_sockets, rendezvous_client
from hvd_elastic.trainer.elastic.world.gloo_sockets import WorldSockets
from hvd_elastic.trainer.elastic.world.peer_watch import PeerWatch
from hvd_elastic.trainer.elastic.world.world_membership import WorldMember
from tests.failing_threads import FailsOnce, fails_once, goes_on, wait_for
from tests.trainer.elastic.fake_launcher import LauncherStore


def test_peer_watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failing = fails_once(monkeypatch, WorldSockets, "probed")
    sockets = WorldSockets()
    watch = PeerWatch(probed=sockets.probed, all_sockets=sockets.descriptors)
    watch.start()
    goes_on("peer-watch", failing, caplog)
    watch.stop()


def test_stall_watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(stall_watch, "_LOOK_SECONDS", 0.01)
    failing = fails_once(monkeypatch, StallWatch, "look")
    monkeypatch.setattr(failing, "_work", lambda *_: None)
    calls: Any = Calls()
    unused: Any = None
    watch = StallWatch(calls, unused, unused)
    watch.enter_world(0, 1)
    goes_on("stall-watch", failing, caplog)


class Calls:
    def install(self) -> None: ...
    def restart(self) -> None: ...
    def occupation(self) -> None: ...


def test_ended(store: LauncherStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failing = fails_once(monkeypatch, rendezvous_client, "publish")
    with EarlyEnd().ended(2, 40):
        goes_on("ended", failing, caplog)
        wait_for(lambda: store.said.get("any") is not None)


def test_init_watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A world that waits for a dead member is ended all the same."""
    monkeypatch.setenv(ENV_RENDEZVOUS_ADDRESS, "127.0.0.1")
    monkeypatch.setattr(rendezvous_client, "launched", lambda: False)
    monkeypatch.setattr(rendezvous_client, "is_world_broken", lambda _: True)
    failing = fails_once(monkeypatch, rendezvous_client, "is_world_broken")
    cut = threading.Event()
    monkeypatch.setattr(WorldSockets, "cut_new", lambda _: cut.set())
    member = WorldMember()
    member._watched(lambda: goes_on("init-watch", failing, caplog))
    assert cut.wait(20)


@pytest.mark.parametrize("look", ["first", "second"])
def test_what_cannot_be_known_of_sockets_keeps_no_world_from_forming(
    look: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that has no descriptor left cannot list its own."""
    listed = gloo_sockets.open_sockets
    looks = iter(["first", "second", "third", "fourth"])

    def open_sockets() -> dict[int, int]:
        if next(looks) == look:
            raise OSError(24, "Too many open files")
        return listed()

    monkeypatch.setattr(gloo_sockets, "open_sockets", open_sockets)
    world, formed = WorldSockets(), []
    world.note(lambda: formed.append(1))
    assert formed == [1]
    assert "a lost host may be noticed late" in caplog.text
    assert "Too many open files" in caplog.text
    assert world.cut() == 0


def test_a_socket_that_cannot_be_probed_keeps_no_world_from_forming(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails_once(monkeypatch, gloo_sockets, "probe_hosts")
    world, made = WorldSockets(), list[socket.socket]()

    def init() -> None:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.set_inheritable(True)
        made.append(connection)

    world.note(init)
    assert "RuntimeError: broken" in caplog.text
    assert world.descriptors() == [made[0].fileno()], "they are known, and watched, all the same"
    made[0].close()


def test_sockets_that_cannot_be_listed_keep_no_world_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    world = WorldSockets()
    world.note(lambda: None)
    monkeypatch.setattr(gloo_sockets, "open_sockets", FailsOnce(dict))
    assert world.cut() == 0
