"""Harm that a test does inside a pod."""

import subprocess

from testbed.cluster.jobs import Job

STANDBY = "hvd_elastic.worker.standby.standby"
"""In the command line of the product's training processes, and of the standbys that would become one."""
SSHD = "sshd"

_SIGNAL = """
import os, pathlib, signal, sys
program, number, most = sys.argv[1].encode(), int(sys.argv[2]), int(sys.argv[3])
for file in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
    pid = int(file.parent.name)
    try:
        found = program in file.read_bytes()
    except OSError:
        continue
    if found and most and pid not in (1, os.getpid()):
        most -= 1
        os.kill(pid, number)
        print('struck', pid)
"""


def kill_training(job: Job, pod: str, program: str = STANDBY) -> bool:
    """SIGKILL the processes of a worker that have `program` in their command line; whether there was one."""
    return signal_processes(job, pod, program, 9)


def signal_processes(job: Job, pod: str, program: str, number: int, *, most: int = 1000) -> bool:
    """Send a signal to the processes of a worker that have `program` in their command line; whether there was one."""
    argv = job.kubectl.argv("exec", pod, "--", "python3", "-S", "-c", _SIGNAL, program, str(number), str(most))
    done = subprocess.run(argv, text=True, capture_output=True, check=False, timeout=30)
    return "struck" in done.stdout


def end_sidecar(job: Job, pod: str) -> bool:
    """Tell the discovery sidecar of a launcher's pod to end; the kubelet starts it again. Whether it was told."""
    script = "import os; os.kill(1, 15)"
    argv = job.kubectl.argv("exec", pod, "--container=discovery", "--", "python3", "-S", "-c", script)
    return subprocess.run(argv, text=True, capture_output=True, check=False, timeout=30).returncode == 0
