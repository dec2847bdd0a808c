"""Launchers' commands, adopted by standbys: real processes, real sockets, real signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import (
    ENV_GRACE_SECONDS,
    ENV_READY_ADDRESS,
    ENV_RUN_DIR,
    HEARTBEAT_FILE,
    LAUNCHER_GONE_FILE,
    Exit,
)
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Yard, eventually

pytestmark = pytest.mark.process

INIT = "import os, sys, time, signal\nimport horovod.torch as hvd\n"

WAITER = (
    INIT
    + """
def stop(number, frame):
    print("stopped by", number, flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
hvd.init()
print("training", os.getpid(), flush=True)
while True:
    time.sleep(0.02)
"""
)


def first_line(client: subprocess.Popen[bytes]) -> str:
    assert client.stdout is not None
    return client.stdout.readline().decode()


@pytest.mark.core
def test_the_command_gets_the_launchers_world_in_the_process_that_waited(yard: Yard, tmp_path: Path) -> None:
    yard.write(
        INIT
        + """
early = os.getpid()
hvd.init()
print(early == os.getpid(), os.getcwd(), sys.argv, sys.stdin.read(), sys.path[0])
for name in ("RANK", "FROM_POD", "BOTH", "HOSTNAME", *sys.argv[1:]):
    print(name, os.environ.get(name))
print("to stderr", file=sys.stderr)
"""
    )
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    names = [ENV_RUN_DIR, ENV_READY_ADDRESS, ENV_GRACE_SECONDS]
    with yard.pod("python", "train.py", *names, env={"FROM_POD": "p", "BOTH": "pod"}) as pod:
        pod.ready()
        launcher = {"RANK": "4", "BOTH": "launcher", "HOSTNAME": "launcher", **dict.fromkeys(names, "launcher")}
        read, write = os.pipe()
        os.write(write, b"input")
        os.close(write)
        code, output = pod.run(env=launcher, cwd=folder, stdin=read)
        os.close(read)
        assert code == 0
        assert output.splitlines() == [
            f"True {folder} {['train.py', *names]} input {yard.folder}",
            "RANK 4",
            "FROM_POD p",
            "BOTH launcher",
            "HOSTNAME pod-under-test",
            *(f"{name} {pod.environment[name]}" for name in names),
            "to stderr",
        ]


@pytest.mark.parametrize("standby", [pytest.param("init", marks=pytest.mark.core), "off"])
def test_what_the_script_changes_before_init_stays(standby: str, yard: Yard) -> None:
    """All but its place in the world, which it cannot know before; with and without a standby."""
    yard.write(
        INIT
        + """
os.makedirs("below", exist_ok=True)
os.chdir("below")
os.environ["CHANGED"] = "script"
os.environ["ADDED"] = "script"
os.environ.pop("REMOVED")
os.environ.setdefault("HOROVOD_RANK", "0")
hvd.init()
print(os.getcwd(), *map(os.environ.get, ("CHANGED", "ADDED", "REMOVED", "HOROVOD_RANK", "UNTOUCHED")))
sys.exit(3)
"""
    )
    with yard.pod(standby=standby, env=dict.fromkeys(("CHANGED", "REMOVED", "UNTOUCHED"), "pod")) as pod:
        pod.ready()
        given = dict.fromkeys(("CHANGED", "ADDED", "REMOVED", "UNTOUCHED"), "launcher") | {"HOROVOD_RANK": "4"}
        code, output = pod.run(env=given, cwd=yard.folder)
        assert (code, output) == (3, f"{yard.folder}/below script script None 4 launcher\n")


@pytest.mark.core
def test_exit_codes_travel_and_each_replaced_process_is_a_new_generation(yard: Yard) -> None:
    yard.write(
        INIT + "hvd.init()\nend = os.environ['END']\nos.kill(os.getpid(), 9) if end == 'kill' else sys.exit(int(end))"
    )
    with yard.pod() as pod:
        for generation, (end, code) in enumerate([("3", 3), ("77", 77), ("kill", 137), ("255", 255)], 1):
            pod.ready(generation=generation)
            assert pod.run(env={"END": end}) == (code, "")
        pod.ready(generation=5)


def test_after_success_no_standby_is_started(yard: Yard) -> None:
    yard.write(INIT + "hvd.init()")
    with yard.pod() as pod:
        pod.ready()
        assert pod.run() == (0, "")
        eventually(lambda: pod.ask() is None, "port closed")
        assert pod.processes() == {}
        assert pod.end() == 0


@pytest.mark.core
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_the_client_reach_the_training_process(yard: Yard, number: int) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        client = pod.adopt()
        assert first_line(client).startswith("training")
        pod.ready(state="training")
        client.send_signal(number)
        output, _ = client.communicate(timeout=DEADLINE_SECONDS)
        assert (client.returncode, output) == (5, f"stopped by {int(number)}\n".encode())


@pytest.mark.core
def test_a_cut_connection_ends_the_training_process(yard: Yard) -> None:
    """No signal comes through a cut ssh connection: the reader of the output is gone, and that is all."""
    yard.write(WAITER.replace('print("stopped by", number, flush=True)', "open('stopped', 'w').close()"))
    with yard.pod() as pod:
        pod.ready()
        client = pod.adopt(cwd=yard.folder, stdin=subprocess.DEVNULL)
        first_line(client)
        assert client.stdout is not None
        client.stdout.close()
        assert client.wait(DEADLINE_SECONDS) == 129
        pod.ready(generation=2)
        assert (yard.folder / "stopped").exists()


def test_one_that_does_not_store_its_state_has_the_grace_of_its_pod(yard: Yard) -> None:
    yard.write(WAITER.replace('print("stopped by", number, flush=True)', "open('stopped', 'w').close()"))
    with yard.pod(grace=2) as pod:
        pod.ready()
        client = pod.adopt(cwd=yard.folder)
        first_line(client)
        (pod.run_dir / HEARTBEAT_FILE).write_text(f"7 0 1 {int(time.time())}\n")
        client.send_signal(signal.SIGSTOP)
        assert client.stdout is not None
        client.stdout.close()
        client.send_signal(signal.SIGTERM)  # of what watches the session, and finds its launcher gone
        client.send_signal(signal.SIGCONT)
        eventually((pod.run_dir / LAUNCHER_GONE_FILE).exists, "it is told")
        assert not (yard.folder / "stopped").exists()
        pod.ready(generation=2)
        assert (yard.folder / "stopped").exists()
        assert not (pod.run_dir / LAUNCHER_GONE_FILE).exists()


def test_a_killed_client_ends_the_training_process_even_one_that_ignores_sigterm(yard: Yard) -> None:
    yard.write(
        INIT + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nhvd.init()\nprint('up', flush=True)\ntime.sleep(999)"
    )
    with yard.pod(end_seconds=0.2) as pod:
        pod.ready()
        client = pod.adopt()
        first_line(client)
        client.kill()
        pod.ready(generation=2)


@pytest.mark.core
def test_a_newer_command_replaces_the_process_without_a_new_generation(yard: Yard) -> None:
    """A restarted launcher sees this very host: it must not find it renamed by its own arrival."""
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        old = pod.adopt()
        old_line = first_line(old)
        new = pod.adopt()
        output, _ = old.communicate(timeout=DEADLINE_SECONDS)
        assert (old.returncode, output) == (5, b"stopped by 15\n")
        assert pod.ready(state="training").generation == 1
        new_line = first_line(new)
        assert new_line.startswith("training")
        assert new_line != old_line
        assert pod.ready(state="training").generation == 1


def stays_until(released: Path) -> str:
    """A script that does not leave before this file is there."""
    waits = f"while not os.path.exists({str(released)!r}): time.sleep(0.01)"
    return WAITER.replace("sys.exit(5)", f"{waits}\n    sys.exit(5)")


def test_of_two_commands_that_wait_the_newer_one_is_served(yard: Yard) -> None:
    released = yard.folder / "released"
    yard.write(stays_until(released))
    with yard.pod(end_seconds=DEADLINE_SECONDS) as pod:
        pod.ready()
        first_line(pod.adopt())
        second, third = pod.adopt(), None
        eventually(lambda: "replaces process" in pod.log_text, "the second command waits")
        third = pod.adopt()
        output, _ = second.communicate(timeout=DEADLINE_SECONDS)
        assert second.returncode == Exit.HOST_CHANGE
        assert b"another command came" in output
        released.touch()
        assert first_line(third).startswith("training")


def test_a_command_that_waits_and_goes_leaves_a_new_generation(yard: Yard) -> None:
    released = yard.folder / "released"
    yard.write(stays_until(released))
    with yard.pod(end_seconds=DEADLINE_SECONDS) as pod:
        pod.ready()
        first_line(pod.adopt())
        second = pod.adopt()
        eventually(lambda: "replaces process" in pod.log_text, "the second command waits")
        second.kill()
        released.touch()
        pod.ready(generation=2)


def test_a_killed_standby_is_made_again_as_a_new_generation(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        (standby,) = pod.processes()
        os.kill(standby, signal.SIGKILL)
        pod.ready(generation=2)
        assert list(pod.processes()) != [standby]


def test_the_same_program_by_another_name_is_adopted(yard: Yard) -> None:
    yard.write(INIT + "hvd.init()\nprint(os.getpid())\nsys.exit(3)")
    with yard.pod() as pod:
        pod.ready()
        (standby,) = pod.processes()
        assert pod.run(str(Path(sys.executable).with_name("python3")), "train.py") == (3, f"{standby}\n")


def test_a_different_command_is_run_without_the_standby(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        code, output = pod.run("sh", "-c", "echo $0 $HOSTNAME; exit 9", "hello")
        assert (code, output) == (9, "hello pod-under-test\n")
        pod.ready(generation=2)
        assert len(pod.processes()) == 1


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["no-such-command"], 127, "No such file"),
        (["/etc/passwd"], 126, "Permission denied"),
    ],
)
def test_a_command_that_cannot_start_says_so_to_the_launcher(
    yard: Yard, argv: list[str], code: int, words: str
) -> None:
    with yard.pod(*argv) as pod:
        pod.ready()
        ended, output = pod.run()
        assert ended == code
        assert words in output
        pod.ready(generation=2)


def test_without_a_standby_the_command_starts_the_script_with_the_cures(yard: Yard) -> None:
    yard.write(INIT + "hvd.init()\nprint(getattr(hvd.init, 'patched', False), sys.argv)\nsys.exit(4)")
    with yard.pod(standby="off") as pod:
        pod.ready()
        assert pod.processes() == {}
        assert pod.run(cwd=yard.folder) == (4, "True ['train.py']\n")
        pod.ready(generation=2)


def test_a_script_that_fails_before_init_is_left_to_the_launcher(yard: Yard) -> None:
    """Two attempts, then the pod is Ready without a standby, so that the job gets the message and the exit code."""
    yard.write(INIT + "raise RuntimeError('no such data set')")
    with yard.pod() as pod:
        pod.ready()
        assert pod.log_text.count("RuntimeError: no such data set") == 2
        code, output = pod.run(cwd=yard.folder)
        assert code == 1
        assert output == (
            "Traceback (most recent call last):\n"
            f'  File "{yard.folder}/train.py", line 3, in <module>\n'
            "    raise RuntimeError('no such data set')\n"
            "RuntimeError: no such data set\n"
        )


def test_a_script_that_recovers_is_warm_again(yard: Yard) -> None:
    yard.write(
        INIT
        + "open('again', 'a').write('.')\n"
        + "if len(open('again').read()) < 2: sys.exit('not yet')\n"
        + "hvd.init()\ntime.sleep(99)"
    )
    with yard.pod() as pod:
        pod.ready()
        assert "not yet" in pod.log_text
        assert len(pod.processes()) == 1


def test_a_script_without_init_is_started_by_the_launcher(yard: Yard) -> None:
    yard.write("print('worked')")
    with yard.pod() as pod:
        pod.ready()
        assert "ended without hvd.init()" in pod.log_text
        assert pod.run(cwd=yard.folder) == (0, "worked\n")


def test_closed_standard_descriptors_are_no_obstacle(yard: Yard) -> None:
    yard.write(INIT + "hvd.init()\nprint(sys.stdin.read())\nsys.exit(6)")
    with yard.pod() as pod:
        pod.ready()
        script = f"exec {pod.run_dir}/adopt python train.py <&- >&- 2>&-"
        assert subprocess.run(["sh", "-c", script], check=False, timeout=DEADLINE_SECONDS).returncode == 6


def test_large_environments_and_odd_bytes_arrive(yard: Yard) -> None:
    yard.write(
        INIT
        + "hvd.init()\nprint(sum(map(len, os.environb.values())) > 1_200_000)\n"
        + "print(os.environb[b'ODD'] == b'\\xff=\\n ')\nsys.exit(1)"
    )
    with yard.pod() as pod:
        pod.ready()
        large = {f"V{number}": "x" * 120_000 for number in range(12)}
        code, output = pod.run(env={**large, "ODD": os.fsdecode(b"\xff=\n ")})
        assert code == 1
        assert output.splitlines() == ["True", "True"]
