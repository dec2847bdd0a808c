"""When horovodrun is started again: decisions over lists of hosts and ends of the launcher."""

import sys
from pathlib import Path

import pytest

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST
from hvd_elastic.launcher.core.supervision import (
    Decision,
    Finish,
    Release,
    Start,
    StopLauncher,
    Supervision,
    SupervisionLimits,
)
from hvd_elastic.launcher.horovodrun import stock_horovodrun
from hvd_elastic.launcher.horovodrun.horovodrun_command import NotElasticError, parse
from hvd_elastic.mpijob.contract import Exit

LIMITS = SupervisionLimits(start=4, minimum=2)


def hosts(*names: str) -> list[Host]:
    return [Host(alias=name, address=name, slots=1, pod=name) for name in names]


def running(*names: str) -> Supervision:
    """Horovodrun trains on these hosts at time 0."""
    supervision = Supervision(LIMITS)
    supervision.set_hosts(hosts(*names), 0.0)
    assert supervision.decide(0.0, oldest_worker=None) == Start(processes=4)
    assert supervision.decide(0.0, oldest_worker=30.0) is None
    return supervision


def wait(
    supervision: Supervision, start: float, *, seconds: float = 10.0, oldest_worker: float | None = None
) -> Decision | None:
    """The first decision from `start` on."""
    ticks = (start + n / 10 for n in range(int(seconds * 10)))
    return next((made for now in ticks if (made := supervision.decide(now, oldest_worker=oldest_worker))), None)


@pytest.mark.parametrize("lost", [(), ("c", "d"), ("a", "b", "c", "d")])
def test_the_reset_limit_ends_the_job_whatever_became_of_the_hosts(lost: tuple[str, ...]) -> None:
    """Begun again, horovodrun would count from 0."""
    supervision = running("a", "b", "c", "d")
    supervision.set_hosts(hosts(*sorted({"a", "b", "c", "d"} - set(lost))), 10.0)
    supervision.launcher_ended(Exit.RESET_LIMIT, 11.0)
    finish = supervision.decide(11.0, oldest_worker=None)
    assert finish == Finish(exit_code=Exit.RESET_LIMIT, reason="its reset limit is reached")


def test_a_script_that_is_wrong_ends_the_job_though_its_launcher_goes_on() -> None:
    supervision = running("a", "b")
    supervision.script_is_wrong("rank 1 has left")
    assert supervision.decide(1.0, oldest_worker=30.0) == Finish(
        exit_code=Exit.SCRIPT_MISTAKE, reason="rank 1 has left"
    )


def test_the_first_start_does_not_wait_for_hosts() -> None:
    """Horovodrun does that itself, and says so."""
    assert Supervision(LIMITS).decide(0.0, oldest_worker=None) == Start(processes=4)


def test_every_host_was_taken() -> None:
    """Horovodrun is started at once, held, so that its imports are done when the next hosts come."""
    supervision = running("a", "b", "c", "d")
    supervision.set_hosts([], 10.0)
    supervision.launcher_ended(1, 11.0)
    assert supervision.decide(11.0, oldest_worker=None) == Start(processes=2, held=True)
    assert wait(supervision, 11.0, seconds=5) is None
    supervision.set_hosts(hosts("e", "x"), 16.0)
    supervision.set_hosts(hosts("e", "x", "y"), 17.0)
    assert wait(supervision, 16.0, seconds=2.5) is None, "another host may come while the world is formed"
    assert supervision.decide(19.0, oldest_worker=None) == Release()
    assert wait(supervision, 19.0, seconds=45) is None


def test_every_host_is_taken_again_at_once() -> None:
    """Its workers are young then, or not yet started: horovodrun would wait for hosts that it has, for ever."""
    supervision = running("a", "b")
    now = 10.0
    for attempt in range(20):
        supervision.set_hosts([], now)
        assert supervision.decide(now, oldest_worker=1.0) is None, "its workers still save their state"
        assert isinstance(supervision.decide(now + 0.5, oldest_worker=None), StopLauncher)
        supervision.launcher_ended(143, now + 1.0)
        assert supervision.decide(now + 1.0, oldest_worker=None) == Start(processes=2, held=True)
        supervision.set_hosts(hosts(f"c{attempt}", f"d{attempt}"), now + 10)
        assert supervision.decide(now + 12, oldest_worker=None) == Release()
        now += 13


def test_processes_that_die_at_each_beginning_end_the_job() -> None:
    """A pod leaves the list with its process, and horovodrun may be stopped for it before it ends by itself."""
    supervision = running("uid-of-a-0", "uid-of-b-0")
    for attempt in range(1, 7):
        now = attempt * 20.0
        supervision.set_hosts([], now)
        assert isinstance(supervision.decide(now, oldest_worker=None), StopLauncher)
        supervision.launcher_ended(1, now, worker_code=139)
        assert supervision.decide(now, oldest_worker=None) == Start(processes=2, held=True)
        supervision.set_hosts(hosts(f"uid-of-a-{attempt}", f"uid-of-b-{attempt}"), now + 5)
        made = supervision.decide(now + 7, oldest_worker=None)
        assert made == (Release() if attempt < 6 else made)
    assert isinstance(made, Finish)


def test_an_error_of_the_script_counts_though_its_hosts_have_left_the_list() -> None:
    supervision = running("uid-of-a-1", "uid-of-b-1")
    supervision.set_hosts([], 10.0)
    assert isinstance(supervision.decide(10.0, oldest_worker=None), StopLauncher)
    supervision.launcher_ended(143, 10.5, worker_code=3)
    made = supervision.decide(10.5, oldest_worker=None)
    assert isinstance(made, Finish)
    assert made.exit_code == 3


def test_a_young_process_is_not_yet_a_worker() -> None:
    """It may be the discovery script. Until workers run, beginning again takes as many as the start."""
    supervision = Supervision(LIMITS)
    supervision.set_hosts(hosts("a", "b"), 0.0)
    supervision.decide(0.0, oldest_worker=None)
    assert supervision.decide(1.0, oldest_worker=1.0) is None
    supervision.set_hosts([], 1.0)
    assert isinstance(supervision.decide(1.0, oldest_worker=None), StopLauncher)
    supervision.launcher_ended(143, 2.0)
    assert supervision.decide(2.0, oldest_worker=None) == Start(processes=4, held=True)


def test_every_host_was_replaced_before_the_launcher_ended() -> None:
    supervision = running("a", "b")
    supervision.set_hosts([], 10.0)
    supervision.set_hosts(hosts("c", "d"), 10.1)
    supervision.launcher_ended(1, 10.2, worker_code=137)
    assert supervision.decide(10.2, oldest_worker=None) == Start(processes=2, held=True)
    assert supervision.decide(12.2, oldest_worker=None) == Release()


def test_a_world_that_does_not_form_is_nobodys_fault() -> None:
    """Up to five times in a row: 77 and 78 are what our workers answer when horovodrun has no place for them."""
    supervision = running("a", "b")
    for attempt in range(5):
        now = 100.0 * attempt
        supervision.launcher_ended(1, now + 20, worker_code=77)
        assert supervision.decide(now + 20, oldest_worker=None) == Start(processes=2, held=True)
        assert supervision.decide(now + 20, oldest_worker=None) == Release()
    supervision.launcher_ended(1, 430.0, worker_code=78)
    assert isinstance(wait(supervision, 430.0), Finish)


def test_hosts_that_stay_away_were_taken() -> None:
    supervision = running("a", "b")
    supervision.set_hosts([], 10.0)
    supervision.launcher_ended(1, 11.0)
    assert supervision.decide(11.0, oldest_worker=None) == Start(processes=2, held=True)
    assert wait(supervision, 11.0, seconds=60) is None
    supervision.set_hosts(hosts("c", "d"), 100.0)
    assert supervision.decide(102.0, oldest_worker=None) == Release()


def test_the_list_follows_the_deaths() -> None:
    supervision = running("a", "b")
    supervision.launcher_ended(1, 10.0, worker_code=CONNECTION_LOST)
    assert supervision.decide(10.0, oldest_worker=None) is None
    supervision.set_hosts(hosts("b"), 12.0)
    assert supervision.decide(12.0, oldest_worker=None) == Start(processes=2, held=True)


def test_a_failure_on_hosts_that_stay() -> None:
    supervision = running("a", "b")
    supervision.launcher_ended(1, 10.0)
    made = wait(supervision, 10.0)
    assert isinstance(made, Finish)
    assert made.exit_code == 1


def test_a_process_that_is_replaced_in_its_pod_was_not_taken_away() -> None:
    """The pod leaves the list until its next standby is warm, and comes back under another alias."""
    supervision = running("uid-of-a-1", "uid-of-b-1")
    supervision.set_hosts(hosts("uid-of-b-1"), 10.0)
    supervision.set_hosts([], 10.5)
    supervision.launcher_ended(1, 11.0, worker_code=137)
    assert supervision.decide(11.0, oldest_worker=None) == Start(processes=2, held=True)
    supervision.set_hosts(hosts("uid-of-a-2"), 16.0)
    assert wait(supervision, 16.0, seconds=3) is None
    supervision.set_hosts(hosts("uid-of-a-2", "uid-of-b-2"), 19.0)
    assert isinstance(supervision.decide(19.0, oldest_worker=None), Finish)


def test_an_error_of_the_script_ends_the_job_with_its_code_at_once() -> None:
    supervision = running("uid-of-a-1", "uid-of-b-1")
    supervision.set_hosts([], 10.5)
    supervision.launcher_ended(1, 11.0, worker_code=3, said="ValueError: odd")
    made = supervision.decide(11.0, oldest_worker=None)
    assert isinstance(made, Finish)
    assert made.exit_code == 3
    assert made.reason.splitlines()[-1] == "ValueError: odd", "what the sidecar takes for its last word"


def test_a_held_launcher_that_ends_has_a_fault_of_its_own() -> None:
    supervision = running("a", "b")
    supervision.set_hosts([], 10.0)
    supervision.launcher_ended(1, 11.0)
    assert supervision.decide(11.0, oldest_worker=None) == Start(processes=2, held=True)
    supervision.launcher_ended(2, 12.0)
    made = wait(supervision, 12.0)
    assert isinstance(made, Finish)
    assert made.exit_code == 2


def test_a_host_that_was_lost_long_ago_excuses_nothing() -> None:
    supervision = running("a", "b", "c")
    supervision.set_hosts(hosts("a", "b"), 10.0)
    supervision.launcher_ended(1, 100.0)
    assert isinstance(wait(supervision, 100.0), Finish)


def test_a_host_that_was_lost_long_ago_takes_no_part_in_the_judgement() -> None:
    """All processes die in pods that stay; a pod that has left for good an hour ago proves nothing about them."""
    supervision = running("uid-of-a-1", "uid-of-b-1", "uid-of-c-1")
    supervision.set_hosts(hosts("uid-of-a-1", "uid-of-b-1"), 10.0)
    supervision.set_hosts(hosts("uid-of-a-1", "uid-of-b-1", "uid-of-d-1"), 20.0)
    supervision.set_hosts([], 3600.0)
    supervision.launcher_ended(1, 3601.0, worker_code=137)
    assert supervision.decide(3601.0, oldest_worker=None) == Start(processes=2, held=True)
    supervision.set_hosts(hosts("uid-of-a-2", "uid-of-b-2", "uid-of-d-2"), 3610.0)
    assert isinstance(supervision.decide(3610.0, oldest_worker=None), Finish)


def test_success_is_success_even_without_hosts() -> None:
    supervision = running("a", "b")
    supervision.set_hosts([], 10.0)
    supervision.launcher_ended(0, 10.5)
    assert supervision.decide(10.5, oldest_worker=None) == Finish(exit_code=0, reason="the script has ended")


def test_horovodrun_stands_still_after_all_its_hosts_were_replaced() -> None:
    supervision = running("a", "b")
    supervision.set_hosts([], 10.0)
    assert wait(supervision, 10.0, seconds=50, oldest_worker=30.0) is None
    supervision.set_hosts(hosts("c", "d"), 60.0)
    assert supervision.decide(60.0, oldest_worker=30.0) is None, "its workers still save their state"
    assert isinstance(supervision.decide(61.0, oldest_worker=None), StopLauncher)
    assert supervision.decide(61.5, oldest_worker=None) is None
    supervision.launcher_ended(143, 62.0)
    assert supervision.decide(62.0, oldest_worker=None) == Start(processes=2, held=True)
    assert supervision.decide(62.0, oldest_worker=None) == Release()


def test_horovodrun_without_hosts_and_workers_is_started_anew_before_the_hosts_come() -> None:
    supervision = running("a", "b")
    supervision.set_hosts([], 10.0)
    assert isinstance(supervision.decide(10.0, oldest_worker=None), StopLauncher)


def test_workers_that_never_end_are_not_waited_for() -> None:
    supervision = running("a", "b")
    supervision.set_hosts(hosts("c", "d"), 10.0)
    assert wait(supervision, 10.0, seconds=59, oldest_worker=30.0) is None
    assert isinstance(supervision.decide(70.0, oldest_worker=30.0), StopLauncher)


def test_hosts_that_return_under_their_names_are_the_same() -> None:
    supervision = running("a", "b")
    supervision.set_hosts([], 10.0)
    assert wait(supervision, 10.0, seconds=2, oldest_worker=30.0) is None
    supervision.set_hosts(hosts("a", "b"), 12.0)
    assert wait(supervision, 12.0, oldest_worker=None) is None


def test_before_the_job_has_begun_it_needs_its_full_start() -> None:
    supervision = Supervision(LIMITS)
    supervision.set_hosts(hosts("a", "b"), 0.0)
    supervision.decide(0.0, oldest_worker=None)
    supervision.set_hosts(hosts("c", "d"), 10.0)
    supervision.launcher_ended(1, 11.0)
    assert supervision.decide(11.0, oldest_worker=None) == Start(processes=4, held=True)


def test_beginning_again_asks_for_the_minimum() -> None:
    script = "/run/hvd-elastic/discover-hosts"
    line = ["-np", "4", "--min-np", "2", "--host-discovery-script", script, "--gloo", "python", "train.py", "-np", "9"]
    command = parse(line)
    assert (command.start, command.minimum) == (4, 2)
    assert command.arguments == tuple(line)
    again = command.beginning_with(2)
    assert again == (*line[:7], "-np", "2", *line[7:])
    assert parse(again).start == 2
    dashes = parse([*line[:7], "--", "python", "train.py"]).beginning_with(2)
    assert dashes[-5:] == ("-np", "2", "--", "python", "train.py")


@pytest.mark.parametrize("beside", [True, False])
def test_the_program_is_of_this_environment_if_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    python = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    if beside:
        (tmp_path / "horovodrun").touch()
    command = parse(["-np", "4", "--host-discovery-script", "/run/hvd-elastic/discover-hosts", "true"])
    ours = (str(python), "-P", "-c", stock_horovodrun.CODE)
    assert command.program == (ours if beside else ("horovodrun",))
    assert command.may_wait is beside


@pytest.mark.parametrize(
    "line",
    [
        ["-np", "2", "python", "train.py"],
        ["-np", "2", "--host-discovery-script", "/run/hvd-elastic/discover-hosts"],
        ["-np", "2", "--host-discovery-script", "./hosts.sh", "python"],
        ["--host-discovery-script", "/run/hvd-elastic/discover-hosts", "python"],
    ],
)
def test_what_cannot_be_begun_again_is_refused(line: list[str]) -> None:
    with pytest.raises(NotElasticError, match="to begin again it needs"):
        parse(line)
