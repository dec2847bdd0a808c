"""On its way to the next world a process leaves where nobody needs what it holds, and otherwise waits for its place."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from hvd_elastic.mpijob.contract import ENV_RUN_DIR, LEAVE_FILE, NO_SUCCESSOR_FILE, Exit
from hvd_elastic.trainer.elastic import departure, run
from hvd_elastic.trainer.elastic.host_updates import HostUpdates
from hvd_elastic.trainer.elastic.reset_timer import ResetTimer
from hvd_elastic.trainer.elastic.state_protocol import ElasticState
from hvd_elastic.trainer.elastic.world import rendezvous_client, world_membership
from hvd_elastic.trainer.elastic.world.rendezvous_client import Removed
from hvd_elastic.trainer.elastic.world.world_membership import WorldMember
from tests.trainer.elastic.fake_launcher import ASSIGNED, HELD, FakeLauncher


def horovods_own() -> ElasticState:
    """As far as a reset needs it, a state that says nothing of itself, as Horovod's own."""
    return cast("ElasticState", SimpleNamespace(commit=lambda: None, on_reset=lambda: None))


@pytest.fixture(autouse=True)
def _process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: WorldMember) -> None:
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    monkeypatch.setattr(world_membership, "THIS_PROCESS", member)
    monkeypatch.setattr(rendezvous_client, "HANDOVER_SECONDS", 0.0)
    monkeypatch.setattr(run, "enter_world", lambda: None)


def reset(state: ElasticState) -> None:
    run._next_world(state, HostUpdates(state), ResetTimer(state))


def test_a_state_of_horovods_own_is_left_behind_where_nobody_can_take_it_over(
    horovod: FakeLauncher, tmp_path: Path
) -> None:
    horovod.answers["rank_and_size"] = [HELD]
    for name in (LEAVE_FILE, NO_SUCCESSOR_FILE):
        (tmp_path / name).touch()
    with pytest.raises(Removed) as leaving:
        reset(horovods_own())
    assert leaving.value.code == int(Exit.REMOVED)
    assert horovod.asked == ["rank_and_size/uid-1:0"]
    assert not horovod.inits


@pytest.mark.parametrize("said", [(LEAVE_FILE,), (NO_SUCCESSOR_FILE,)])
def test_and_kept_for_another_worker_where_one_may_come(
    horovod: FakeLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: tuple[str, ...]
) -> None:
    """The launcher answers when the other worker is there; until then the process looks again and again."""
    horovod.answers["rank_and_size"] = [HELD, ASSIGNED]
    for name in said:
        (tmp_path / name).touch()
    looks = threading.Semaphore(0)
    has_no_successor = departure.has_no_successor

    def look() -> bool:
        looks.release()
        return has_no_successor()

    monkeypatch.setattr(departure, "has_no_successor", look)

    def the_other_comes() -> None:
        for _ in range(3):
            assert looks.acquire(timeout=60)
        horovod.answers["rank_and_size"][0] = ASSIGNED
        horovod.over.set()

    coming = threading.Thread(target=the_other_comes)
    coming.start()
    reset(horovods_own())
    coming.join()
    assert os.environ["HOROVOD_RANK"] == "1"
    assert len(horovod.inits) == 1
