"""`hvd-elastic launch` with real processes: whichever of them dies, hangs, comes or goes, the others train on."""

import http.client
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hvd_elastic.discovery.job_beginning import mark_begun
from hvd_elastic.mpijob.contract import Exit
from testbed.local.harness import Job
from testbed.local.harness import job as make_job

pytestmark = pytest.mark.process

POINTS = ["start", "barrier", "init", "sync", "step"]
"""Where a newcomer may die: before it asks, at the barrier, after its release, in the first exchange, in training."""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with make_job(tmp_path) as made:
        yield made
    assert not made.left()


@pytest.mark.core
def test_a_job_runs_to_its_end(job: Job) -> None:
    job.environment["WORKER_STEPS"] = "20"
    job.hosts("a", "b")
    job.launch("-np", "2")
    assert job.ends() == 0
    assert {e["step"] for e in job.events("finished")} == {20}
    assert job.status()["state"] == "ended"


@pytest.mark.core
def test_grows_and_shrinks_without_losing_a_step(job: Job) -> None:
    job.hosts("a", "b")
    job.launch("-np", "2", "--min-np", "1", "--max-np", "4")
    job.trains("a:0", "b:0")
    job.hosts("a", "b", "c:2")
    job.trains("a:0", "b:0", "c:0", "c:1")
    job.hosts("b", "c:2")
    job.trains("b:0", "c:0", "c:1")
    job.check_no_step_was_lost()
    assert {e["why"] for e in job.events("reset")} == {"HostsUpdated"}
    expected = [["a joined", "b joined"], ["c joined"], ["a removed"]]
    job.until(lambda: [resize["causes"] for resize in job.status()["resizes"]] == expected, f"{expected}")


def test_survivors_do_not_stand_still_while_a_newcomer_starts(job: Job) -> None:
    """Stock stops training, then starts the newcomer's process (4.8 s of imports)."""
    job.hosts("a")
    job.order("b:0", "start", "hang")
    job.launch("-np", "1")
    job.trains("a:0")
    job.hosts("a", "b")
    job.until(lambda: job.events("trouble", "b:0") and job.is_stopped("b:0"), "the newcomer hangs in its start")
    job.trains("a:0")
    assert not job.events("reset")
    job.kill("b:0", signal.SIGCONT)
    job.trains("a:0", "b:0")


@pytest.mark.core
def test_a_newcomers_death_costs_nobody_else(job: Job) -> None:
    job.hosts("a", "b")
    job.launch("-np", "2", "--gloo-timeout-seconds", "3")
    job.trains("a:0", "b:0")
    for point in POINTS:
        job.order(f"{point}:0", point, "kill")
        job.hosts("a", "b", point)
        job.until(partial(job.events, "trouble", f"{point}:0"), "the newcomer's death")
        job.hosts("a", "b", f"after-{point}")
        job.trains("a:0", "b:0", f"after-{point}:0")
    job.check_no_step_was_lost()


@pytest.mark.parametrize("first", [True, False])
def test_a_members_death_in_a_resize_costs_nobody_else(job: Job, first: bool) -> None:
    """Rank 0 or the newest member dies while it asks, at the barrier, in init, in the first exchange."""
    names = ["h1", "h2", "h3"]
    job.hosts(*names)
    job.launch("-np", "3", "--min-np", "1", "--gloo-timeout-seconds", "3")
    job.trains(*(f"{name}:0" for name in names))
    for number, point in enumerate(["ask", "barrier", "init", "sync"], start=4):
        victim = names.pop(0 if first else -1)
        job.order(f"{victim}:0", point, "kill")
        job.hosts(*names, victim, f"h{number}")
        job.until(partial(job.events, "trouble", f"{victim}:0"), "the death")
        names.append(f"h{number}")
        job.trains(*(f"{name}:0" for name in names))
    job.check_no_step_was_lost()


@pytest.mark.core
def test_a_killed_worker_and_then_rank_0(job: Job) -> None:
    job.hosts("a", "b", "c")
    job.launch("-np", "2", "--min-np", "1", "--max-np", "3")
    job.trains("a:0", "b:0", "c:0")
    job.kill("b:0")
    job.trains("a:0", "c:0")
    job.hosts("a", "b-2", "c")
    job.trains("a:0", "b-2:0", "c:0")
    job.kill("a:0")
    job.hosts("a-2", "b-2", "c")
    job.trains("a-2:0", "b-2:0", "c:0")
    job.check_no_step_was_lost()


def test_a_whole_host_with_several_processes(job: Job) -> None:
    job.hosts("a:2", "b:2")
    job.launch("-np", "2", "--min-np", "1")
    job.trains("a:0", "a:1", "b:0", "b:1")
    job.kill("a:0")
    job.trains("b:0", "b:1")


@pytest.mark.core
def test_a_process_that_hangs_is_written_off(job: Job) -> None:
    job.hosts("a", "b", "c")
    job.launch("-np", "2", "--min-np", "1", "--hang-timeout", "4", "--gloo-timeout-seconds", "1")
    job.trains("a:0", "b:0", "c:0")
    job.kill("b:0", signal.SIGSTOP)
    job.trains("a:0", "c:0")
    job.until(lambda: len(job.left()) == 2, "the end of the hung process")


def test_a_host_that_hangs_and_is_removed_is_not_waited_for(job: Job) -> None:
    """A lost node: no answer, no exit. Discovery drops it, and the survivors go on after the Gloo time-out."""
    job.hosts("a", "b", "c")
    job.launch("-np", "2", "--min-np", "1", "--gloo-timeout-seconds", "2")
    job.trains("a:0", "b:0", "c:0")
    job.kill("a:0", signal.SIGSTOP)
    job.hosts("b", "c")
    job.trains("b:0", "c:0")


def test_processes_that_were_stopped_are_written_off_together(job: Job) -> None:
    job.hosts("a", "b", "c", "d", "e")
    job.launch("-np", "5", "--min-np", "1", "--hang-timeout", "4", "--gloo-timeout-seconds", "1")
    job.trains("a:0", "b:0", "c:0", "d:0", "e:0")
    for name in ("b:0", "d:0"):
        job.kill(name, signal.SIGSTOP)
    job.kill("c:0")
    job.hosts("a", "b", "d", "e")
    job.trains("a:0", "e:0")
    (causes,) = [resize["causes"] for resize in job.status()["resizes"] if "written off" in str(resize["causes"])]
    assert {cause for cause in causes if "written off" in cause} == {f"{n} written off: silent (4 s)" for n in "bd"}
    job.check_no_step_was_lost()


def test_a_slow_process_is_waited_for(job: Job) -> None:
    """It computes while a third one dies. Its notification service answers meanwhile."""
    job.hosts("a", "b", "c")
    job.launch("-np", "3", "--min-np", "1", "--gloo-timeout-seconds", "1")
    job.trains("a:0", "b:0", "c:0")
    job.order("b:0", "step", "sleep 12")
    job.until(lambda: [e for e in job.events("trouble", "b:0") if e["where"] == "step"])
    job.kill("c:0")
    job.hosts("a", "b")
    job.trains("a:0", "b:0")
    assert len(job.events("started", "b:0")) == 1


def test_the_job_begins_again_where_only_a_stopped_process_holds_the_state(job: Job) -> None:
    """Nobody is left to notice it: the others were taken away, and a newcomer waits for the state."""
    job.hosts("a", "b")
    job.launch("-np", "2", "--min-np", "1", "--hang-timeout", "4", "--gloo-timeout-seconds", "1")
    job.trains("a:0", "b:0")
    job.kill("a:0", signal.SIGSTOP)
    job.hosts("a", "c")
    job.until(lambda: job.events("joins", "c:0"), "the newcomer at the barrier")
    job.kill("b:0")
    job.trains("c:0")
    assert "taken away" in job.said()


@pytest.mark.core
def test_every_host_replaced_at_once_hands_the_state_over(job: Job) -> None:
    """Stock: "No hosts from previous set remaining, unable to broadcast state", and the job ends."""
    job.hosts("a", "b")
    job.launch("-np", "2", "--min-np", "1", "--max-np", "2")
    job.trains("a:0", "b:0")
    job.hosts("c", "d")
    job.trains("c:0", "d:0")
    job.check_no_step_was_lost()
    first = job.events("joined", "c:0")[0]
    assert first["step"] > 0


def test_a_change_while_another_is_under_way_is_not_forgotten(job: Job) -> None:
    """Stock: a third host that appears while the second one is importing is never used."""
    job.hosts("a")
    job.order("b:0", "start", "sleep 0.7")
    job.launch("-np", "1")
    job.trains("a:0")
    job.hosts("a", "b")
    job.until(lambda: job.events("trouble", "b:0"), "the second host starts")
    job.hosts("a", "b", "c")
    job.trains("a:0", "b:0", "c:0")
    for hosts in (["a", "b"], ["a", "b", "d"], ["a", "c", "d"]):
        job.hosts(*hosts)
        time.sleep(0.05)
    job.trains("a:0", "c:0", "d:0")
    job.check_no_step_was_lost()


def test_a_removed_worker_that_ends_with_0_is_no_success(job: Job) -> None:
    """Stock: once its name is back, its 0 counts as the job's success, and the job is torn down."""
    job.hosts("a", "b")
    job.order("b:0", "removed", "exit 0")
    job.launch("-np", "1")
    job.trains("a:0", "b:0")
    job.hosts("a")
    job.until(lambda: job.events("trouble", "b:0"), "b leaves with 0")
    job.hosts("a", "b")
    job.trains("a:0", "b:0")
    job.hosts("a", "b", "c")
    job.trains("a:0", "b:0", "c:0")


@pytest.mark.core
def test_a_scripts_error_ends_the_job_at_once_with_its_message(job: Job) -> None:
    job.hosts("a", "b")
    job.launch("-np", "2")
    job.trains("a:0", "b:0")
    job.order("b:0", "step", "exit 3")
    assert job.ends() == 3
    assert "ValueError: trouble at step" in job.status()["reason"]


def test_a_scripts_error_may_be_treated_as_a_death(job: Job) -> None:
    job.hosts("a", "b")
    job.launch("-np", "1", "--on-error", "restart")
    job.trains("a:0", "b:0")
    job.order("b:0", "step", "exit 3")
    job.trains("a:0")


def test_a_newcomers_own_error_does_not_end_the_job_of_the_others(job: Job) -> None:
    job.hosts("a")
    job.order("b:0", "start", "exit 1")
    job.launch("-np", "1")
    job.trains("a:0")
    job.hosts("a", "b")
    job.until(lambda: job.status()["blacklisted"] == ["b"], "the newcomer is left out")
    job.trains("a:0")
    assert "ValueError: trouble at start" in job.said()


def test_a_mistake_ends_the_job(job: Job) -> None:
    job.hosts("a", "b")
    job.order("b:0", "start", f"exit {int(Exit.SCRIPT_MISTAKE)}")
    job.launch("-np", "2")
    assert job.ends() == Exit.SCRIPT_MISTAKE


def test_too_few_workers_for_too_long(job: Job) -> None:
    job.hosts("a", "b")
    job.launch("-np", "2", "--elastic-timeout", "1")
    job.trains("a:0", "b:0")
    job.kill("b:0")
    assert job.ends() == Exit.MIN_WORKERS_TIMEOUT
    assert "1 of 2" in job.status()["reason"]


def test_too_few_workers_at_the_start(job: Job) -> None:
    job.hosts("a")
    job.launch("-np", "2", "--elastic-timeout", "0.5")
    assert job.ends() == Exit.MIN_WORKERS_TIMEOUT
    assert not job.events("started")


@pytest.mark.core
def test_stands_still_below_the_minimum_and_goes_on(job: Job) -> None:
    job.hosts("a", "b")
    job.launch("-np", "2", "--elastic-timeout", "30")
    job.trains("a:0", "b:0")
    job.hosts("a")
    job.until(lambda: job.events("removed", "b:0"), "the removed one need not wait for a replacement")
    job.hosts("a", "c")
    job.trains("a:0", "c:0")
    job.check_no_step_was_lost()


def test_the_reset_limit(job: Job) -> None:
    job.hosts("a")
    job.launch("-np", "1", "--reset-limit", "1")
    job.trains("a:0")
    job.hosts("a", "b")
    job.trains("a:0", "b:0")
    job.hosts("a")
    assert job.ends() == Exit.RESET_LIMIT


def test_nothing_starts_before_enough_slots_are_there(job: Job) -> None:
    job.hosts("a:1")
    job.launch("-np", "4", "--min-np", "1")
    for hosts, slots in ((["a:1"], 1), (["a:1", "b:2"], 3)):
        job.hosts(*hosts)
        job.until(lambda slots=slots: job.wanted() == slots, "they are seen")  # type: ignore[misc]
        assert not job.events("started")
    job.hosts("a:1", "b:2", "c:1")
    job.trains("a:0", "b:0", "b:1", "c:0")
    assert job.status()["generation"] == 1


def test_a_job_that_has_begun_before_begins_again_with_its_minimum(job: Job) -> None:
    mark_begun(job.run_dir)
    job.hosts("a:1")
    job.launch("-np", "4", "--min-np", "1")
    job.trains("a:0")
    job.hosts("a:1", "b:2")
    job.trains("a:0", "b:0", "b:1")


def test_it_waits_for_the_sidecar_which_may_start_later(job: Job) -> None:
    """And takes its word that the job has begun before."""
    job.launch("-np", "4", "--min-np", "1")
    job.until(lambda: "waiting for the first list" in job.said(), "it waits")
    mark_begun(job.run_dir)
    job.hosts("a:1")
    job.trains("a:0")


def test_a_host_that_fails_before_the_first_world_is_left_out(job: Job) -> None:
    job.hosts("a:2", "b:2")
    job.order("b:1", "barrier", "kill")
    job.launch("-np", "2", "--max-np", "4")
    job.trains("a:0", "a:1")
    assert job.status()["blacklisted"] == ["b"]


def test_a_host_that_comes_before_the_first_world_is_part_of_it(job: Job) -> None:
    job.hosts("a:2")
    job.order("a:0", "start", "sleep 1")
    job.launch("-np", "2", "--max-np", "4")
    job.until(lambda: job.events("trouble", "a:0"), "the first one is slow")
    job.hosts("a:2", "b:2")
    job.trains("a:0", "a:1", "b:0", "b:1")


def test_one_process_that_ends_with_0_ends_the_job(job: Job) -> None:
    """The others have lost it and would form a world without it, but the training is done."""
    job.hosts("a:2", "b:2")
    job.launch("-np", "4")
    job.trains("a:0", "a:1", "b:0", "b:1")
    job.order("b:0", "step", "exit 0")
    assert job.ends() == 0
    assert not job.left()


@pytest.mark.core
def test_taking_every_host_away_ends_nothing(job: Job) -> None:
    """The launcher stays, and begins again in place with hosts that come later."""
    job.hosts("a", "b")
    job.launch("-np", "2")
    job.trains("a:0", "b:0")
    for taken, back in ((("a", "b"), ("c", "d")), (("c", "d"), ("e", "f"))):
        job.hosts()
        for name in taken:
            job.kill(f"{name}:0")
        job.until(lambda: job.size() == 0, "nobody trains")
        job.hosts(*back)
        job.trains(*(f"{name}:0" for name in back))
    assert "every worker that held the state was taken away" in job.said()


def test_all_workers_lost(job: Job) -> None:
    job.hosts("a", "b")
    job.launch("-np", "2")
    job.trains("a:0", "b:0")
    job.kill("a:0", signal.SIGSTOP)
    job.kill("b:0")
    job.kill("a:0")
    assert job.ends() == Exit.ALL_WORKERS_LOST


@pytest.mark.core
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(job: Job, number: int) -> None:
    job.hosts("a", "b:2")
    job.launch("-np", "2")
    job.trains("a:0", "b:0", "b:1")
    job.kill("a:0", signal.SIGSTOP)
    assert job.process is not None
    os.kill(job.process.pid, number)
    assert job.ends() == 128 + number
    assert not job.left()


@pytest.mark.core
def test_a_new_launcher_ends_what_a_killed_one_has_left(job: Job) -> None:
    job.hosts("a", "b")
    job.launch("-np", "2")
    job.trains("a:0", "b:0")
    old = job.left()
    assert job.process is not None
    for pid in old:
        os.kill(pid, signal.SIGSTOP)
    job.process.kill()
    job.process.wait()
    assert len(job.left()) == 2
    job.launch("-np", "2")
    job.until(lambda: not set(old) & set(job.left()), "the end of the old processes")
    job.trains("a:0", "b:0")


def test_a_torn_or_missing_snapshot_takes_no_host_away(job: Job) -> None:
    job.hosts("a", "b")
    job.launch("-np", "2")
    job.trains("a:0", "b:0")
    (job.run_dir / "hosts").write_text("host 127.0.0.1 1 a a\n")
    job.until(lambda: "stay as they are" in job.said(), "the complaint")
    (job.run_dir / "hosts").unlink()
    job.trains("a:0", "b:0")
    assert job.status()["generation"] == 1


def test_a_script_that_hangs_fails_or_lies_takes_no_host_away(job: Job, tmp_path: Path) -> None:
    script = tmp_path / "discover"
    script.write_text("#!/bin/sh\n. $(dirname $0)/now\n")
    script.chmod(0o755)
    now = tmp_path / "now"
    now.write_text("echo localhost:2")
    job.launch("-np", "2", discovery=str(script))
    job.trains("localhost:0", "localhost:1")
    for trouble in ("exit 3", "echo 'a b c'", "sleep 60", "echo localhost:two"):
        now.write_text(trouble)
        job.until(lambda: job.said().count("stay as they are") > 0, trouble)
        job.trains("localhost:0", "localhost:1")
    now.write_text("echo localhost:2; echo 127.0.0.1:1")
    job.trains("localhost:0", "localhost:1", "127.0.0.1:0")
    assert job.status()["generation"] == 2


def test_stock_workers_without_a_barrier(job: Job) -> None:
    """A script with Horovod's own worker side: it enters hvd.init() with what its environment says."""
    command = ["sh", "-c", 'exec "$@" --stock', "sh", os.sys.executable, "-S", "testbed/local/harness_worker.py"]  # type: ignore[attr-defined]
    job.hosts("a", "b")
    job.launch("-np", "2", "--min-np", "1", command=command)
    job.trains("a:0", "b:0")
    job.hosts("a", "b", "c")
    job.trains("a:0", "b:0", "c:0")
    job.hosts("b", "c")
    job.trains("b:0", "c:0")
    job.kill("b:0")
    job.trains("c:0")


def test_stock_workers_outlive_a_newcomer_that_imports_for_longer_than_gloo_waits(job: Job) -> None:
    command = ["sh", "-c", 'exec "$@" --stock', "sh", os.sys.executable, "-S", "testbed/local/harness_worker.py"]  # type: ignore[attr-defined]
    job.hosts("a", "b")
    job.launch("-np", "2", "--min-np", "1", "--gloo-timeout-seconds", "4", command=command)
    job.trains("a:0", "b:0")
    job.order("c:0", "start", "sleep 9")
    job.hosts("a", "b", "c")
    job.trains("a:0", "b:0", "c:0")
    assert [event["why"] for event in job.events("reset")] == ["HostsUpdated"] * 2


def test_output_carries_the_rank_and_goes_to_files(job: Job, tmp_path: Path) -> None:
    job.hosts("a", "b")
    script = "echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2"
    job.launch("-np", "2", "--output-filename", str(tmp_path / "logs"), command=["sh", "-c", script])
    assert job.ends() == 0
    assert sorted((tmp_path / "out").read_text().splitlines()) == ["[0]<stdout>:out 0", "[1]<stdout>:out 1"]
    assert "[0]<stderr>:err 0" in (tmp_path / "err").read_text()
    assert (tmp_path / "logs" / "rank.1" / "stdout").read_text() == "out 1\n"


def test_secrets_are_on_no_command_line(job: Job) -> None:
    job.environment["AWS_SECRET_ACCESS_KEY"] = "very-secret"
    job.hosts("a")
    job.launch("-np", "1")
    job.trains("a:0")
    assert job.process is not None
    for pid in [job.process.pid, *job.left()]:
        assert b"very-secret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert b"very-secret" in Path(f"/proc/{job.pid('a:0')}/environ").read_bytes()


def test_a_stranger_cannot_take_the_place_of_a_process(job: Job) -> None:
    """One question in its name had the others killed as if they hung."""
    job.hosts("a", "b")
    job.launch("-np", "2", "--hang-timeout", "1")
    job.trains("a:0", "b:0")
    environment = dict(e.split("=", 1) for e in Path(f"/proc/{job.pid('a:0')}/environ").read_text().split("\0") if e)
    token = environment["HOROVOD_RENDEZVOUS_TOKEN"]
    port = int(environment["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    for method, path in (("GET", "/rank_and_size/a:0"), ("GET", "/join/b:0"), ("PUT", "/worker_addresses/a:0")):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path, b"")
        assert connection.getresponse().status == 403
        connection.close()
    job.hosts("a", "b", "c")
    job.trains("a:0", "b:0", "c:0")
    job.check_no_step_was_lost()
    assert {e["why"] for e in job.events("reset")} == {"HostsUpdated"}
    assert token not in job.said()
    assert job.process is not None
    for pid in (job.process.pid, job.pid("a:0"), job.pid("c:0")):
        assert token not in Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.core
def test_only_allowed_sizes_train_and_surplus_hosts_wait(job: Job) -> None:
    """A lost host of four leaves three: two of them go on, and the third trains again with the next that comes."""
    job.hosts("a:2", "b:2", "c:2", "d:2")
    job.launch("-np", "8", "--min-np", "2", "--max-np", "8", "--sizes", "2,4,8")
    eight = [f"{host}:{rank}" for host in "abcd" for rank in (0, 1)]
    job.trains(*eight)
    job.hosts("a:2", "c:2", "d:2")
    job.trains("a:0", "a:1", "c:0", "c:1")
    job.hosts("a:2", "c:2", "d:2", "e:2")
    job.trains("a:0", "a:1", "c:0", "c:1", "d:0", "d:1", "e:0", "e:1")
    job.check_no_step_was_lost()
    assert {event["size"] for event in job.events("step")} == {8, 4}
    assert job.status()["resizes"][1]["causes"] == ["b removed", "d is surplus"]
