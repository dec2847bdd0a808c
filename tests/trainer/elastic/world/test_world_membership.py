import os

import pytest

from hvd_elastic.trainer.collectives.errors import HorovodInternalError
from hvd_elastic.trainer.elastic.world import rendezvous_client, world_membership
from hvd_elastic.trainer.elastic.world.rendezvous_client import Removed, RendezvousLost
from hvd_elastic.trainer.elastic.world.world_membership import WorldMember
from tests.trainer.elastic.fake_launcher import ASSIGNED, FakeLauncher

FAILED = "Horovod initialization failed. Please check log messages above for a more descriptive error."


def test_the_first_world_has_the_place_that_the_launcher_gave(launcher: FakeLauncher, member: WorldMember) -> None:
    member.enter(launcher.init)
    assert launcher.asked == ["join/uid-1:0"]
    assert launcher.inits == [{"ELASTIC": "1", "RANK": "0", "SIZE": "2"}]


def test_waits_at_the_barrier_until_all_are_there(launcher: FakeLauncher, member: WorldMember) -> None:
    launcher.answers["join"] = ["wait", "wait", "go"]
    member.enter(launcher.init)
    assert launcher.asked == ["join/uid-1:0"] * 3


def test_a_death_at_the_barrier_means_a_new_place(launcher: FakeLauncher, member: WorldMember) -> None:
    launcher.answers = {"join": ["again", "again", "go"], "rank_and_size": ["0,2,0,1,0,2", ASSIGNED]}
    member.enter(launcher.init)
    assert [asked.partition("/")[0] for asked in launcher.asked] == ["join", "rank_and_size"] * 2 + ["join"]
    assert launcher.inits == [{"ELASTIC": "1", "RANK": "1", "SIZE": "3"}]


def test_a_reset_asks_once_and_horovod_does_not_ask_again(horovod: FakeLauncher, member: WorldMember) -> None:
    """Asked twice a worker counts as READY twice; with HOROVOD_ELASTIC=0 `hvd.init()` reads the environment instead."""
    horovod.answers["rank_and_size"] = [ASSIGNED]
    member.reset()
    assert horovod.asked == ["rank_and_size/uid-1:0", "join/uid-1:0"]
    assert horovod.inits == [{"ELASTIC": "0", "RANK": "1", "SIZE": "3"}]
    assert os.environ["HOROVOD_ELASTIC"] == "1"
    assert os.environ["HOROVOD_CROSS_SIZE"] == "3"


@pytest.mark.parametrize("first", [True, False])
def test_a_world_that_a_member_dies_in_is_followed_by_another(
    horovod: FakeLauncher, member: WorldMember, first: bool
) -> None:
    horovod.fails = [FAILED, FAILED]
    horovod.answers["rank_and_size"] = ["0,2,0,1,0,2", ASSIGNED, ASSIGNED]
    if first:
        member.enter(horovod.init)
    else:
        member.reset()
    assert [init["ELASTIC"] for init in horovod.inits] == ["1" if first else "0", "0", "0"]
    assert [asked.partition("/")[0] for asked in horovod.asked].count("rank_and_size") == (2 if first else 3)
    assert horovod.inits[-1]["RANK"] == "1"


def test_members_that_never_reach_each_other_give_up(horovod: FakeLauncher, member: WorldMember) -> None:
    horovod.fails = [FAILED] * 100
    horovod.answers["rank_and_size"] = [ASSIGNED] * 100
    with pytest.raises(RendezvousLost):
        member.reset()
    assert len(horovod.inits) == world_membership.FORM_ATTEMPTS


def test_a_mistake_in_the_call_of_init_is_the_scripts(horovod: FakeLauncher, member: WorldMember) -> None:
    horovod.fails = ["Horovod could not be initialized because process_sets entry number 0 is a duplicate"]
    with pytest.raises(ValueError, match="duplicate"):
        member.enter(horovod.init)
    assert len(horovod.inits) == 1


def test_a_removed_worker_forms_no_world(horovod: FakeLauncher, member: WorldMember) -> None:
    horovod.answers["rank_and_size"] = ["-1,-1,-1,-1,-1,-1"]
    with pytest.raises(Removed):
        member.reset()
    assert not horovod.inits


def test_a_lost_server_ends_the_way_into_a_world(
    horovod: FakeLauncher, member: WorldMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", "1")
    with pytest.raises(RendezvousLost):
        member.reset()
    with pytest.raises(RendezvousLost):
        member.enter(horovod.init)


def test_a_place_that_comes_at_once_is_taken_for_the_state_to_be_handed_over(
    horovod: FakeLauncher, member: WorldMember
) -> None:
    horovod.answers["rank_and_size"] = [ASSIGNED]
    member.reset(lambda: True)
    assert horovod.inits == [{"ELASTIC": "0", "RANK": "1", "SIZE": "3"}]


def test_the_launcher_is_told_once_that_the_state_is_here(launcher: FakeLauncher, member: WorldMember) -> None:
    member.report_synced()
    member.report_synced()
    assert launcher.asked == ["synced/uid-1:0"]


def test_without_a_launcher_nobody_is_asked(
    launcher: FakeLauncher, member: WorldMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_ELASTIC", "HOROVOD_CONTROLLER"):
        monkeypatch.delenv(name, raising=False)
    member.enter(launcher.init)
    member.report_synced()
    assert launcher.asked == []
    assert os.environ["HOROVOD_CONTROLLER"] == "gloo"
    assert launcher.inits[0]["ELASTIC"] == ""


@pytest.mark.parametrize("first", [True, False])
def test_a_member_that_dies_as_a_world_begins_is_followed_by_another_world(
    horovod: FakeLauncher, member: WorldMember, first: bool
) -> None:
    horovod.answers["rank_and_size"] = [ASSIGNED] * 2
    fails = [HorovodInternalError("a member is lost")]

    def formed() -> None:
        if fails:
            raise fails.pop()

    if first:
        member.enter(horovod.init, formed)
    else:
        member.reset(formed=formed)
    assert len(horovod.inits) == 2


@pytest.mark.parametrize("size", [1, 3, 64, 1024])
def test_the_launcher_is_asked_no_more_often_than_it_can_answer(size: int) -> None:
    pause = rendezvous_client.look_pause(size)
    assert pause >= rendezvous_client.LOOK_SECONDS
    assert size / pause <= rendezvous_client.QUESTIONS_PER_SECOND
