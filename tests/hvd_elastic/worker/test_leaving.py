"""How a worker's pod ends: preempted, interrupted, out of grace, or killed with all it holds."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import (
    ADOPT_SOCKET,
    CHECKPOINT_REQUEST_FILE,
    LEAVE_FILE,
    NO_SUCCESSOR_FILE,
    SSH_KEY,
    Exit,
)
from hvd_elastic.system.job_key import request_key
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Pod, Yard, eventually
from tests.hvd_elastic.worker.test_adoption import INIT, WAITER, first_line

pytestmark = pytest.mark.process

TRAINS_UNTIL_REMOVED = (
    INIT
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
print("up", flush=True)
while not os.path.exists("removed"):
    time.sleep(0.01)
sys.exit(77)
"""
)


LEAVES_WITHOUT_SUCCESSOR = (
    INIT
    + """
from hvd_elastic.trainer.elastic.departure import has_no_successor
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
print("up", flush=True)
while not has_no_successor():
    time.sleep(0.01)
sys.exit(77)
"""
)
"""As training that waits for its next world."""


def job_key(yard: Yard) -> str:
    """Give the pods of this folder an ssh key, and return the key with which requests to them are signed."""
    key = yard.folder / SSH_KEY
    key.parent.mkdir()
    key.write_text("the job's own")
    return request_key(key)


def train(pod: Pod, yard: Yard) -> subprocess.Popen[bytes]:
    pod.ready()
    client = pod.adopt(cwd=yard.folder)
    first_line(client)
    return client


def test_without_training_the_pod_ends_at_once(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod(grace=600) as pod:
        pod.ready()
        assert pod.end() == 0
        assert pod.processes() == {}
        assert not (pod.run_dir / LEAVE_FILE).exists()
        assert not (pod.run_dir / ADOPT_SOCKET).exists()


@pytest.mark.core
def test_it_stays_until_training_has_left_and_then_ends_at_once(yard: Yard) -> None:
    yard.write(TRAINS_UNTIL_REMOVED)
    with yard.pod(grace=600) as pod:
        client = train(pod, yard)
        pod.process.terminate()
        pod.ready(state="leaving")
        assert (pod.run_dir / LEAVE_FILE).exists()
        assert "about to end" in (pod.run_dir / CHECKPOINT_REQUEST_FILE).read_text()
        late, output = pod.run(cwd=yard.folder)
        assert (late, "about to end" in output) == (Exit.HOST_CHANGE, True)
        (yard.folder / "removed").touch()
        assert client.wait(DEADLINE_SECONDS) == 77
        assert pod.process.wait(DEADLINE_SECONDS) == 0


def test_where_nobody_can_take_the_state_over_it_ends_at_once(yard: Yard) -> None:
    yard.write(LEAVES_WITHOUT_SUCCESSOR)
    key = job_key(yard)
    with yard.pod(grace=600) as pod:
        client = train(pod, yard)
        pod.request("no-successor", key)  # it is to stay: this says nothing
        pod.process.terminate()
        pod.ready(state="leaving")
        assert not (pod.run_dir / NO_SUCCESSOR_FILE).exists()
        pod.request("no-successor", key)
        assert client.wait(DEADLINE_SECONDS) == Exit.REMOVED
        assert pod.process.wait(DEADLINE_SECONDS) == 0
        assert "grace is over" not in pod.log_text


@pytest.mark.parametrize("has_key", [True, False])
def test_no_stranger_makes_it_leave(yard: Yard, has_key: bool) -> None:
    yard.write(TRAINS_UNTIL_REMOVED)
    words = ["", "-", job_key(yard)[:-1]] if has_key else ["", "-"]
    with yard.pod(grace=600) as pod:
        train(pod, yard)
        pod.process.terminate()
        pod.ready(state="leaving")
        for word in words:
            pod.ask(f"no-successor {word}\n".encode())
        eventually(lambda: "without the job's key" in pod.log_text, "the refusal")
        pod.ready(state="leaving")  # it has read all of them
        assert not (pod.run_dir / NO_SUCCESSOR_FILE).exists()
        assert pod.log_text.count("without the job's key") == 1


def test_when_the_grace_is_nearly_over_it_ends_by_itself(yard: Yard) -> None:
    yard.write(TRAINS_UNTIL_REMOVED)
    with yard.pod(grace=1.2) as pod:
        client = train(pod, yard)
        begin = time.monotonic()
        assert pod.end() == 0
        assert time.monotonic() - begin > 0.5
        assert "grace is over" in pod.log_text
        assert client.wait(DEADLINE_SECONDS) == 137
        assert pod.processes() == {}


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_asked_twice_it_ends_at_once(yard: Yard, second: signal.Signals) -> None:
    yard.write(TRAINS_UNTIL_REMOVED)
    with yard.pod(grace=600) as pod:
        client = train(pod, yard)
        pod.process.terminate()
        pod.ready(state="leaving")
        pod.process.send_signal(second)
        assert pod.process.wait(DEADLINE_SECONDS) == 0
        assert client.wait(DEADLINE_SECONDS) == 137
        assert pod.processes() == {}


def test_a_standby_that_warms_up_is_no_reason_to_stay(yard: Yard) -> None:
    yard.write("import time; print('warming', flush=True); time.sleep(999)")
    with yard.pod(grace=600) as pod:
        eventually(lambda: "warming" in pod.log_text, "the script runs")
        assert pod.end() == 0
        assert pod.processes() == {}


def test_a_command_that_waits_for_its_predecessor_is_told_to_go_elsewhere(yard: Yard) -> None:
    yard.write(TRAINS_UNTIL_REMOVED)
    with yard.pod(grace=600, end_seconds=600) as pod:
        train(pod, yard)
        second = pod.adopt(cwd=yard.folder)
        eventually(lambda: "replaces process" in pod.log_text, "the second command waits")
        pod.process.terminate()
        assert second.wait(DEADLINE_SECONDS) == Exit.HOST_CHANGE
        (yard.folder / "removed").touch()
        assert pod.process.wait(DEADLINE_SECONDS) == 0


def test_data_loaders_of_a_killed_trainer_are_not_left_behind(yard: Yard) -> None:
    yard.write(
        INIT
        + "import subprocess\nhvd.init()\np = subprocess.Popen(['sleep', '999'])\n"
        + "print(p.pid, flush=True)\ntime.sleep(99)"
    )
    with yard.pod() as pod:
        pod.ready()
        client = pod.adopt()
        loader = int(first_line(client))
        (trainer,) = [pid for pid, line in pod.processes().items() if "standby" in line]
        os.kill(trainer, signal.SIGKILL)
        assert client.wait(DEADLINE_SECONDS) == 137
        eventually(lambda: loader not in pod.processes(), "the loader is gone")


@pytest.mark.core
@pytest.mark.parametrize("moment", ["warming", "waiting", "training"])
def test_a_killed_entry_point_takes_its_processes_along(yard: Yard, moment: str) -> None:
    yard.write("import time; print('warming', flush=True); time.sleep(999)" if moment == "warming" else WAITER)
    with yard.pod() as pod:
        client = None
        if moment == "warming":
            eventually(lambda: "warming" in pod.log_text, "the script runs")
        else:
            pod.ready()
        if moment == "training":
            client = pod.adopt()
            first_line(client)
        pod.process.kill()
        eventually(lambda: not pod.processes(), "its processes are gone")
        if client is not None:
            assert client.wait(DEADLINE_SECONDS) == 137
        late = pod.run()
        assert (late[0], "no entry point" in late[1]) == (Exit.HOST_CHANGE, True)


def test_a_new_entry_point_takes_over_the_run_folder_of_a_killed_one(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        train(pod, yard)
        for name in (LEAVE_FILE, NO_SUCCESSOR_FILE):
            (pod.run_dir / name).write_text("stale\n")
        pod.process.kill()
        pod.process.wait()
        with yard.pod(env=pod.environment) as again:
            again.ready(generation=2)
            assert not (again.run_dir / LEAVE_FILE).exists()
            assert not (again.run_dir / NO_SUCCESSOR_FILE).exists()
            first_line(again.adopt())


def test_it_dies_with_the_process_that_started_it_where_asked(yard: Yard) -> None:
    yard.write(TRAINS_UNTIL_REMOVED)
    # A parent that starts the entry point, says its process id, and waits.
    parent = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); p.wait()"
    with yard.pod(options=["--no-sshd", "--die-with-parent"], wrapper=[sys.executable, "-c", parent], grace=600) as pod:
        train(pod, yard)
        pod.process.kill()
        eventually(lambda: not pod.processes(), "all processes are gone")


@pytest.mark.core
def test_orphans_are_reaped_and_ended_with_the_pod(yard: Yard) -> None:
    yard.write(
        INIT
        + """
hvd.init()
for seconds in ("0.05",) * 20 + ("999",):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", seconds])
        os._exit(0)
    os.wait()
print("forked", flush=True)
time.sleep(999)
"""
    )
    with yard.pod() as pod:
        train(pod, yard)
        orphans = eventually(lambda: [p for p, line in pod.processes().items() if line == "sleep 999"], "the orphan")
        eventually(lambda: not [p for p, line in pod.processes().items() if line == "sleep 0.05"], "the others ended")
        eventually(lambda: "Z" not in children_states(pod.process.pid), "all of them are reaped")
        pod.process.terminate()
        pod.process.send_signal(signal.SIGINT)
        assert pod.process.wait(DEADLINE_SECONDS) == 0
        assert not set(orphans) & set(pod.processes())


def children_states(parent: int) -> str:
    states = ""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else ()
            states += fields[0] if fields and int(fields[1]) == parent else ""
    return states


def test_the_port_of_a_pod_that_leaves_is_open_as_long_as_it_trains(yard: Yard) -> None:
    yard.write(TRAINS_UNTIL_REMOVED)
    with yard.pod(slots=2, grace=600) as pod:
        pod.ready()
        client = pod.adopt(cwd=yard.folder, env={"HOROVOD_LOCAL_RANK": "1"})
        first_line(client)
        pod.process.terminate()
        pod.ready(state="leaving")
        eventually(lambda: len(pod.processes()) == 1, "the standby of the other slot is ended")
        (yard.folder / "removed").touch()
        assert pod.process.wait(DEADLINE_SECONDS) == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((pod.address, 2223), timeout=5)
