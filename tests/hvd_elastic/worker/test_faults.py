"""What strangers, floods and broken peers do to a running pod: nothing."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import (
    ADOPT_FILE,
    ADOPT_SOCKET,
    CHECKPOINT_REQUEST_FILE,
    ENV_LAUNCHER_SECONDS,
    HEARTBEAT_FILE,
    LEAVE_FILE,
    READY_PORT,
    SSH_KEY,
    Exit,
)
from hvd_elastic.system.job_key import NO_KEY, bearer_word, new_nonce, request_key, sign
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Answer, Pod, Yard, eventually
from tests.hvd_elastic.worker.test_adoption import INIT, WAITER, first_line

pytestmark = pytest.mark.process


def connected(pod: Pod) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(pod.run_dir / ADOPT_SOCKET))
    return connection


def test_a_flood_of_connections_leaves_the_port_answering_and_no_descriptor_behind(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        before = pod.descriptors()
        idle = [socket.create_connection((pod.address, READY_PORT)) for _ in range(300)]
        for number, connection in enumerate(idle):
            if number % 3 == 0:
                connection.close()
            elif number % 3 == 1:
                with contextlib.suppress(OSError):
                    connection.sendall(b"checkpoint" if number % 2 else b"\xff" * 5000)
        assert pod.ready().generation == 1
        for connection in idle:
            connection.close()
        eventually(lambda: pod.descriptors() <= before, "no descriptor is left")


def test_a_silent_connection_is_let_go(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        before = pod.descriptors()
        with socket.create_connection((pod.address, READY_PORT)) as silent:
            assert silent.makefile().read().startswith("hvd-elastic 1 1 waiting")
            eventually(lambda: pod.descriptors() <= before, "the entry point lost its patience")


@pytest.mark.core
def test_heartbeat_and_checkpoint_requests_pass_through(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        assert pod.ask(b"checkpoint - nobody trains\n") == Answer(generation=1, state="waiting", step=-1, age=-1)
        assert not (pod.run_dir / CHECKPOINT_REQUEST_FILE).exists()
        client = pod.adopt()
        first_line(client)
        (pod.run_dir / HEARTBEAT_FILE).write_text(f"41 0 2 {int(time.time()) - 7}")
        answer = pod.ask(b"checkpoint - below min workers\n")
        assert answer is not None
        assert (answer.state, answer.step, answer.age in (7, 8)) == ("training", 41, True)
        request = pod.run_dir / CHECKPOINT_REQUEST_FILE
        assert eventually(lambda: request.exists() and request.read_text(), "the request") == "below min workers\n"
        (pod.run_dir / HEARTBEAT_FILE).write_text("torn")
        client.terminate()
        assert pod.ready(generation=2) == Answer(generation=2, state="waiting", step=-1, age=-1)
        assert not request.exists()
        assert not (pod.run_dir / HEARTBEAT_FILE).exists()


def _give_key(yard: Yard) -> None:
    """A script that waits, and the job's ssh key."""
    yard.write(WAITER)
    (yard.folder / SSH_KEY).parent.mkdir()
    (yard.folder / SSH_KEY).write_text("the job's own")


@pytest.mark.core
def test_only_who_has_the_jobs_key_may_ask_for_anything(yard: Yard) -> None:
    _give_key(yard)
    (yard.folder / "another").write_text("another job's")
    stranger, own = (request_key(yard.folder / name) for name in ("another", SSH_KEY))
    with yard.pod() as pod:
        pod.ready()
        first_line(pod.adopt())
        request = pod.run_dir / CHECKPOINT_REQUEST_FILE
        for word in ("", "-", stranger, own, own[:-1], "\u00e9"):
            pod.ask(f"checkpoint {word} now\n".encode())
            pod.ask(f"challenge\ncheckpoint {word} now\n".encode())
            pod.ask(f"leave {word}\n".encode())
        for key in (stranger, NO_KEY):
            pod.request("checkpoint", key, "now")
            pod.request("leave", key)
        pod.ask(f"leave {sign(own, '', 'leave ')}\n".encode())  # no challenge, so no nonce
        pod.request("checkpoint", own, "in earnest")
        assert eventually(lambda: request.exists() and request.read_text(), "the request") == "in earnest\n"
        assert pod.log_text.count("without the job's key") == 1
        assert not (pod.run_dir / LEAVE_FILE).exists()


def test_a_request_that_was_heard_is_believed_once(yard: Yard) -> None:
    """As by a pod that got a worker's former address, where the sidecar still sends requests."""
    _give_key(yard)
    with yard.pod() as pod:
        pod.ready()
        first_line(pod.adopt())
        signature = sign(request_key(yard.folder / SSH_KEY), new_nonce(), "leave ")
        with socket.create_connection((pod.address, READY_PORT), timeout=20) as replay:
            replay.sendall(b"challenge\n")
            replay.sendall(f"leave {signature}\n".encode())
            assert len(replay.makefile().readlines()) == 2
        eventually(lambda: "without the job's key" in pod.log_text, "the refusal")
        assert not (pod.run_dir / LEAVE_FILE).exists()


def test_a_sidecar_of_the_release_before_is_believed(yard: Yard) -> None:
    """Its word is the same for all workers and requests. It goes with the next release."""
    _give_key(yard)
    with yard.pod() as pod:
        pod.ready()
        first_line(pod.adopt())
        pod.ask(f"leave {bearer_word(yard.folder / SSH_KEY)}\n".encode())
        eventually((pod.run_dir / LEAVE_FILE).exists, LEAVE_FILE)


def test_training_is_told_to_leave_and_the_pod_stays(yard: Yard) -> None:
    _give_key(yard)
    with yard.pod() as pod:
        pod.ready()
        client = pod.adopt()
        first_line(client)
        pod.request("leave", request_key(yard.folder / SSH_KEY))
        for name in (LEAVE_FILE, CHECKPOINT_REQUEST_FILE):
            eventually((pod.run_dir / name).exists, name)
        client.terminate()  # it has left
        pod.ready(generation=2)
        assert not (pod.run_dir / LEAVE_FILE).exists()


def test_without_a_key_nobody_may_tell_training_to_leave(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        first_line(pod.adopt())
        pod.ask(b"leave -\n")
        pod.ask(b"checkpoint - below min workers\n")
        eventually((pod.run_dir / CHECKPOINT_REQUEST_FILE).exists, "the request after it")
        assert not (pod.run_dir / LEAVE_FILE).exists()


def test_a_worker_without_a_launcher_ends(yard: Yard) -> None:
    """But not one that trains, nor one that is told that its launcher is there: neither ends for longer than that."""
    limit, longer = 3.0, 4.5
    yard.write(INIT + f"hvd.init()\ntime.sleep({longer})\nsys.exit(5)")
    with yard.pod(env={ENV_LAUNCHER_SECONDS: str(limit)}) as pod:
        pod.ready()
        enough = time.monotonic() + longer

        def was_told_for_longer() -> bool:
            assert pod.ask(b"launcher\n") is not None
            return time.monotonic() > enough

        eventually(was_told_for_longer, "time passes")
        assert pod.run()[0] == 5, "it trained to its end"
        assert pod.process.wait(DEADLINE_SECONDS) == Exit.NO_LAUNCHER


@pytest.mark.core
def test_messages_that_are_no_requests_are_refused(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        before = pod.descriptors()
        for message in (b"", b"A", b"AAAA", b"x" * 100_000, b"\0"):
            with connected(pod) as connection, contextlib.suppress(ConnectionError):
                connection.sendall(message)
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1) == b""
        assert first_line(pod.adopt()).startswith("training")
        # The client's connection is the only one more.
        eventually(lambda: pod.descriptors() <= before + 1, "no descriptor is left")


def test_descriptors_of_strangers_are_closed(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        before = pod.descriptors()
        for count in (1, 3, 4, 5, 250):
            with connected(pod) as connection, Path(os.devnull).open() as null:
                socket.send_fds(connection, [b"A"], [null.fileno()] * count)
                with contextlib.suppress(ConnectionError):
                    assert connection.recv(1) == b""
        eventually(lambda: pod.descriptors() <= before, "no descriptor is left")


def test_a_silent_stranger_at_the_socket_is_let_go(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        with connected(pod) as silent:
            assert silent.recv(1) == b""


def test_fifty_adoptions_leak_nothing(yard: Yard) -> None:
    yard.write(INIT + "hvd.init()\nsys.exit(3)")
    with yard.pod(standby="off") as pod:
        pod.ready()
        pod.run("sh", "-c", "exit 4")
        pod.ready(generation=2)
        before = pod.descriptors()
        for _ in range(50):
            assert pod.run("sh", "-c", "exit 4")[0] == 4
        eventually(lambda: pod.descriptors() <= before, "no descriptor is left")


def test_the_training_process_holds_no_descriptor_of_the_entry_point(yard: Yard) -> None:
    """A descriptor that outlives its owner keeps an ssh session open without end."""
    yard.write(
        INIT
        + "hvd.init()\nfor name in sorted(os.listdir('/proc/self/fd')):\n"
        + "    try: print(name, os.readlink('/proc/self/fd/' + name))\n"
        + "    except OSError: pass  # that of the listing\n"
        + "sys.exit(3)"
    )
    with yard.pod() as pod:
        pod.ready()
        _, output = pod.run(stdin=subprocess.DEVNULL)
        assert [line.split()[0] for line in output.splitlines()] == ["0", "1", "2"], output


STRANGER = """
import os, socket, sys
os.setuid(1000)
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    print(connection.recv(1))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_other_users_are_refused_whatever_the_files_mode_says(yard: Yard) -> None:
    yard.write(WAITER)
    with (
        tempfile.TemporaryDirectory() as run_dir,
        yard.pod(env={"HVD_ELASTIC_RUN_DIR": run_dir}) as pod,
    ):
        pod.ready()
        path = pod.run_dir / ADOPT_SOCKET
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o666)
        pod.run_dir.chmod(0o755)
        command = [sys.executable, "-IS", "-c", STRANGER, str(path)]
        output = subprocess.run(command, capture_output=True, check=True, text=True, timeout=DEADLINE_SECONDS).stdout
        assert output == "b''\n"
        assert "user 1000 was refused" in pod.log_text


def test_a_long_run_folder_works(yard: Yard, tmp_path: Path) -> None:
    """An AF_UNIX address holds 107 bytes."""
    yard.write(WAITER)
    long = tmp_path / ("long" * 30) / "run dir"
    with yard.pod(env={"HVD_ELASTIC_RUN_DIR": str(long)}) as pod:
        pod.ready()
        assert first_line(pod.adopt()).startswith("training")


def test_a_taken_port_is_waited_for(yard: Yard) -> None:
    yard.write(WAITER)
    address = "127.88.1.1"
    with (
        socket.create_server((address, READY_PORT)) as taken,
        yard.pod(env={"HVD_ELASTIC_READY_ADDRESS": address}) as pod,
    ):
        eventually(lambda: "cannot be opened yet" in pod.log_text, "the port is taken")
        taken.close()
        pod.ready()


def test_a_bad_environment_is_one_message_with_every_problem(yard: Yard) -> None:
    env = {"HVD_ELASTIC_SLOTS": "zero", "HVD_ELASTIC_STANDBY": "warm", "HVD_ELASTIC_GRACE_SECONDS": "-1"}
    with yard.pod(env=env) as pod:
        assert pod.process.wait(DEADLINE_SECONDS) == 2
        for name, value in env.items():
            assert f"{name}: {value!r} is not" in pod.log_text
        assert "Traceback" not in pod.log_text


def test_a_run_folder_that_cannot_be_made_is_said(yard: Yard) -> None:
    yard.write("", "file")
    with yard.pod(env={"HVD_ELASTIC_RUN_DIR": str(yard.folder / "file" / "run")}) as pod:
        assert pod.process.wait(DEADLINE_SECONDS) == 2
        assert "Not a directory" in pod.log_text


def test_the_client_is_a_file_that_only_its_pod_writes(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        client = pod.run_dir / ADOPT_FILE
        assert client.stat().st_mode & 0o777 == 0o755
        assert str(pod.run_dir / ADOPT_SOCKET) in client.read_text()
