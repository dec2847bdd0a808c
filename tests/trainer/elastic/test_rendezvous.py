"""Against Horovod's own rendezvous server, with a handler that answers as a launcher would."""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from horovod.runner.http.http_server import RendezvousHandler, RendezvousServer

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.elastic import rendezvous
from hvd_elastic.trainer.elastic.rendezvous import Place, Removed, RendezvousLost

ASSIGNED = "1,3,0,1,1,3"
HELD = "no answer yet"


@dataclass
class Launcher:
    """Answers in turn; what is asked beyond them is not found."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    inits: list[dict[str, str]] = field(default_factory=list)
    fails: list[str] = field(default_factory=list)
    """With which messages the next inits fail."""
    over: threading.Event = field(default_factory=threading.Event)
    """Ends what is held."""

    def init(self) -> None:
        """In place of `hvd.init()`: note what it would have read."""
        self.inits.append({name: os.environ.get(f"HOROVOD_{name}", "") for name in ("ELASTIC", "RANK", "SIZE")})
        if self.fails:
            raise ValueError(self.fails.pop(0))


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    told = Launcher()

    class Handler(RendezvousHandler):  # type: ignore[misc]
        def _get_value(self, scope: str, key: str) -> bytes | None:
            told.asked.append(f"{scope}/{key}")
            queue = told.answers.get(scope, [])
            if queue and queue[0] == HELD:
                told.over.wait(60)
            return queue.pop(0).encode() if queue else None

    server = RendezvousServer()
    port = server.start(Handler)
    environ = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_HOSTNAME": "uid-1",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_RANK": "0",
        "HOROVOD_SIZE": "2",
        "HOROVOD_ELASTIC": "1",
    }
    for name in Place.parse(ASSIGNED).environment():
        monkeypatch.setenv(name, "0")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    yield told
    told.over.set()
    server.stop()
    server._httpd.server_close()


def test_a_stock_launcher_has_no_barrier(launcher: Launcher) -> None:
    rendezvous.enter(launcher.init)
    assert launcher.asked == ["join/uid-1:0"]
    assert launcher.inits == [{"ELASTIC": "1", "RANK": "0", "SIZE": "2"}]


def test_waits_at_the_barrier_until_all_are_there(launcher: Launcher) -> None:
    launcher.answers["join"] = ["wait", "wait", "go"]
    rendezvous.enter(launcher.init)
    assert launcher.asked == ["join/uid-1:0"] * 3


def test_a_death_at_the_barrier_means_a_new_place(launcher: Launcher) -> None:
    launcher.answers = {"join": ["again", "again", "go"], "rank_and_size": ["0,2,0,1,0,2", ASSIGNED]}
    rendezvous.enter(launcher.init)
    assert [asked.partition("/")[0] for asked in launcher.asked] == ["join", "rank_and_size"] * 2 + ["join"]
    assert launcher.inits == [{"ELASTIC": "1", "RANK": "1", "SIZE": "3"}]


@pytest.fixture
def horovod(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    import horovod.torch as hvd

    monkeypatch.setattr(hvd, "shutdown", lambda: None)
    monkeypatch.setattr(hvd, "init", launcher.init)
    return launcher


def test_a_reset_asks_once_and_horovod_does_not_ask_again(horovod: Launcher) -> None:
    """Asked twice a worker counts as READY twice; with HOROVOD_ELASTIC=0 `hvd.init()` reads the environment instead."""
    horovod.answers["rank_and_size"] = [ASSIGNED]
    rendezvous.reset()
    assert horovod.asked == ["rank_and_size/uid-1:0", "join/uid-1:0"]
    assert horovod.inits == [{"ELASTIC": "0", "RANK": "1", "SIZE": "3"}]
    assert os.environ["HOROVOD_ELASTIC"] == "1"
    assert os.environ["HOROVOD_CROSS_SIZE"] == "3"


FAILED = "Horovod initialization failed. Please check log messages above for a more descriptive error."


@pytest.mark.parametrize("first", [True, False])
def test_a_world_that_a_member_dies_in_is_followed_by_another(horovod: Launcher, first: bool) -> None:
    horovod.fails = [FAILED, FAILED]
    horovod.answers["rank_and_size"] = ["0,2,0,1,0,2", ASSIGNED, ASSIGNED]
    if first:
        rendezvous.enter(horovod.init)
    else:
        rendezvous.reset()
    assert [init["ELASTIC"] for init in horovod.inits] == ["1" if first else "0", "0", "0"]
    assert [asked.partition("/")[0] for asked in horovod.asked].count("rank_and_size") == (2 if first else 3)
    assert horovod.inits[-1]["RANK"] == "1"


def test_members_that_never_reach_each_other_do_not_try_for_ever(horovod: Launcher) -> None:
    horovod.fails = [FAILED] * 100
    horovod.answers["rank_and_size"] = [ASSIGNED] * 100
    with pytest.raises(RendezvousLost):
        rendezvous.reset()
    assert len(horovod.inits) == rendezvous.FORM_ATTEMPTS


def test_a_mistake_in_the_call_of_init_is_the_scripts(horovod: Launcher) -> None:
    horovod.fails = ["Horovod could not be initialized because process_sets entry number 0 is a duplicate"]
    with pytest.raises(ValueError, match="duplicate"):
        rendezvous.enter(horovod.init)
    assert len(horovod.inits) == 1


def test_a_removed_worker_unwinds_with_a_code_of_its_own(horovod: Launcher) -> None:
    horovod.answers["rank_and_size"] = ["-1,-1,-1,-1,-1,-1"]
    with pytest.raises(Removed) as leaving:
        rendezvous.reset()
    assert isinstance(leaving.value, SystemExit), "`finally` and atexit run, `except Exception` does not stop it"
    assert leaving.value.code == int(Exit.REMOVED)
    assert not horovod.inits


@pytest.mark.parametrize("answers", [[], ["rank one of three"], ["1,2,3"]])
def test_no_place_is_a_lost_rendezvous(horovod: Launcher, answers: list[str]) -> None:
    horovod.answers["rank_and_size"] = answers
    with pytest.raises(RendezvousLost) as leaving:
        rendezvous.reset()
    assert leaving.value.code == Exit.HOST_CHANGE


def test_a_lost_server_is_a_host_change(horovod: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", "1")
    with pytest.raises(RendezvousLost):
        rendezvous.reset()
    with pytest.raises(RendezvousLost):
        rendezvous.enter(horovod.init)


def test_a_worker_that_may_leave_does_not_wait_for_a_place_that_nobody_can_give(horovod: Launcher) -> None:
    horovod.answers["rank_and_size"] = [HELD]
    asked: list[bool] = []

    def may_leave() -> bool:
        asked.append(len(asked) >= 3)
        return asked[-1]

    with pytest.raises(Removed):
        rendezvous.reset(may_leave)
    assert asked == [False, False, False, True]
    assert horovod.asked == ["rank_and_size/uid-1:0"], "asked twice a worker counts as READY twice"


def test_a_place_that_comes_at_once_is_taken_for_the_state_to_be_handed_over(horovod: Launcher) -> None:
    horovod.answers["rank_and_size"] = [ASSIGNED]
    rendezvous.reset(lambda: True)
    assert horovod.inits == [{"ELASTIC": "0", "RANK": "1", "SIZE": "3"}]


def test_without_a_launcher_nobody_is_asked(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_ELASTIC", "HOROVOD_CONTROLLER"):
        monkeypatch.delenv(name, raising=False)
    rendezvous.enter(launcher.init)
    assert launcher.asked == []
    assert os.environ["HOROVOD_CONTROLLER"] == "gloo"
    assert launcher.inits[0]["ELASTIC"] == ""


@pytest.mark.parametrize("solo", [False, True])
def test_a_standby_waits_once_and_then_goes_where_it_is_told(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, solo: bool
) -> None:
    import horovod.torch as hvd
    import horovod.torch.elastic as stock

    from hvd_elastic.trainer.elastic.run import run

    up: list[bool] = []

    def stock_init(*_: Any) -> None:
        if not up:  # as Horovod: a second call does nothing
            up.append(True)
            launcher.init()

    for module, name, value in ((hvd, "init", stock_init), (stock, "run", stock.run)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(hvd, "shutdown", up.clear)
    monkeypatch.setattr(hvd, "is_initialized", lambda: bool(up))
    monkeypatch.setattr(rendezvous, "_gate", [])
    waited: list[int] = []
    monkeypatch.setattr(hvd, "local_rank", lambda: 0)
    rendezvous.install(lambda: waited.append(len(launcher.inits)), solo=(3, 4) if solo else None)
    rendezvous.install()
    assert stock.run is run

    hvd.init()
    hvd.init()
    assert waited == ([] if solo else [0])
    assert hvd.local_rank() == (3 if solo else 0)
    assert rendezvous.pass_gate() is solo
    assert hvd.local_rank() == 0
    assert not rendezvous.pass_gate()
    assert waited == ([1] if solo else [0])
    assert [init["ELASTIC"] for init in launcher.inits if init["SIZE"] == "2"] == (["1", "0"] if solo else ["1"])
    assert launcher.asked == ["join/uid-1:0"]
