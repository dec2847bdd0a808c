import itertools
import os
from types import SimpleNamespace

import pytest
from horovod.runner.http.http_client import put_data_into_kvstore

from hvd_elastic.launcher.core.slot_placement import SlotKey
from hvd_elastic.launcher.protocol.horovod_messages import Registration
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer, Reply
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.collectives import notifications
from hvd_elastic.trainer.elastic.world import rendezvous_client
from hvd_elastic.trainer.elastic.world.rendezvous_client import Removed, RendezvousLost
from tests.trainer.elastic.fake_launcher import ASSIGNED, HELD, FakeLauncher


class Nobody:
    """The world behind a server that believes nobody: nothing reaches it."""

    def request_place(self, key: SlotKey, reply: Reply) -> None:
        raise AssertionError(key)

    wait_at_barrier = ask_for_writer = request_place

    def synced(self, key: SlotKey) -> None:
        raise AssertionError(key)

    def register(self, key: SlotKey, registration: Registration, *, proven: bool) -> None:
        raise AssertionError(key)

    def initialising(self, rank: int, reply: Reply) -> None:
        raise AssertionError(rank)


def address() -> tuple[str, int]:
    return os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])


def test_a_stock_launcher_has_no_barrier(launcher: FakeLauncher) -> None:
    assert rendezvous_client.join()
    assert launcher.asked == ["join/uid-1:0"]


def test_waits_at_the_barrier_until_all_are_there(launcher: FakeLauncher) -> None:
    launcher.answers["join"] = ["wait", "wait", "go"]
    assert rendezvous_client.join()
    assert launcher.asked == ["join/uid-1:0"] * 3


def test_asks_for_a_place_once_and_puts_it_into_the_environment(launcher: FakeLauncher) -> None:
    """A worker that asks twice counts as READY twice."""
    launcher.answers["rank_and_size"] = [ASSIGNED]
    rendezvous_client.take_place()
    assert launcher.asked == ["rank_and_size/uid-1:0", "join/uid-1:0"]
    assert os.environ["HOROVOD_RANK"] == "1"
    assert os.environ["HOROVOD_CROSS_SIZE"] == "3"


def test_a_removed_worker_unwinds_with_a_code_of_its_own(launcher: FakeLauncher) -> None:
    launcher.answers["rank_and_size"] = ["-1,-1,-1,-1,-1,-1"]
    with pytest.raises(Removed) as leaving:
        rendezvous_client.take_place()
    assert isinstance(leaving.value, SystemExit), "`finally` and atexit run, `except Exception` does not stop it"
    assert leaving.value.code == int(Exit.REMOVED)


@pytest.mark.parametrize("answers", [[], ["rank one of three"], ["1,2,3"]])
def test_no_place_is_a_lost_rendezvous(launcher: FakeLauncher, answers: list[str]) -> None:
    launcher.answers["rank_and_size"] = answers
    with pytest.raises(RendezvousLost) as leaving:
        rendezvous_client.take_place()
    assert leaving.value.code == Exit.HOST_CHANGE


def test_a_lost_server_is_a_host_change(launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", "1")
    with pytest.raises(RendezvousLost):
        rendezvous_client.take_place()
    with pytest.raises(RendezvousLost):
        rendezvous_client.join()
    assert not rendezvous_client.is_world_broken(lambda: False), "a watchdog that cannot ask ends nothing"


def test_a_worker_that_may_leave_does_not_wait_for_a_place_that_nobody_can_give(launcher: FakeLauncher) -> None:
    launcher.answers["rank_and_size"] = [HELD]
    asked: list[bool] = []

    def may_leave() -> bool:
        asked.append(len(asked) >= 3)
        return asked[-1]

    with pytest.raises(Removed):
        rendezvous_client.take_place(may_leave)
    assert asked == [False, False, False, True]
    assert launcher.asked == ["rank_and_size/uid-1:0"], "asked twice a worker counts as READY twice"


def test_the_launcher_names_the_one_that_stores_the_last_commit(launcher: FakeLauncher) -> None:
    launcher.answers["writer"] = ["yes", "no"]
    assert [rendezvous_client.is_next_writer() for _ in range(3)] == [True, False, False], "a stock one names nobody"
    assert launcher.asked == ["writer/uid-1:0"] * 3


def test_a_watch_that_is_held_ends_with_what_it_watches(launcher: FakeLauncher) -> None:
    launcher.answers["global"] = [HELD]
    looks = iter([False, False, True])
    assert not rendezvous_client.is_world_broken(lambda: next(looks))
    assert launcher.asked == ["global/watch"]


def test_every_request_shows_the_jobs_token(launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_RENDEZVOUS_TOKEN", "a word")
    monkeypatch.setattr(rendezvous_client, "installed_patches", lambda: ("rendezvous-token",))
    launcher.answers["rank_and_size"] = [ASSIGNED]
    rendezvous_client.take_place()
    rendezvous_client.report_synced()
    rendezvous_client.is_world_broken(lambda: False)
    rendezvous_client.register_bytes(*address(), "worker_addresses", "uid-1:0", b"7")
    assert [path.partition("/")[0] for path in launcher.asked] == ["rank_and_size", "join", "synced", "global"]
    assert launcher.shown == [("a word", "1")] * 5


def test_the_barrier_names_the_meeting_of_one_world(launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_MEETING", "6")
    launcher.answers["join"] = ["wait", "go 7"]
    assert rendezvous_client.join()
    assert os.environ["HOROVOD_GLOO_MEETING"] == "7"
    launcher.answers["join"] = ["go"]
    assert rendezvous_client.join()
    assert "HOROVOD_GLOO_MEETING" not in os.environ, "not of this world"


def test_a_stock_launcher_is_shown_nothing(launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_RENDEZVOUS_TOKEN", raising=False)
    rendezvous_client.join()
    assert launcher.shown == [(None, None)]


def test_a_worker_that_the_launcher_does_not_believe_does_not_go_on_without_the_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = RendezvousServer("127.0.0.1", Nobody(), token="a word")
    server.start()
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", str(server.port))
    monkeypatch.delenv("HOROVOD_RENDEZVOUS_TOKEN", raising=False)
    with pytest.raises(RendezvousLost):
        rendezvous_client.join()
    monkeypatch.setenv("HOROVOD_RENDEZVOUS_TOKEN", "another")
    with pytest.raises(RuntimeError, match="403"):
        rendezvous_client.register_bytes(*address(), "worker_addresses", "uid-1:0", b"7")
    server.stop()


def test_the_notification_service_is_registered_as_horovod_does(launcher: FakeLauncher) -> None:
    value = ({"lo": [("127.0.0.1", 5)]}, b"key")
    for register in (put_data_into_kvstore, notifications.in_stock_form(rendezvous_client.register_bytes)):
        register(*address(), "worker_addresses", "uid-1:0", value)
    assert launcher.put == [("worker_addresses/uid-1:0", launcher.put[0][1])] * 2


def test_a_place_is_waited_for_as_long_as_it_takes(launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inference may keep every GPU for days. Here an hour passes with each look at the clock."""
    launcher.answers["rank_and_size"] = [HELD, ASSIGNED]
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(rendezvous_client, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    looks: list[None] = []

    def looks_around() -> bool:
        looks.append(None)
        if len(looks) == 3:
            launcher.answers["rank_and_size"][0] = ASSIGNED
            launcher.over.set()
        return False

    rendezvous_client.take_place(looks_around)
    assert os.environ["HOROVOD_RANK"] == "1"
