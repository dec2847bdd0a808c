"""Harm that a test does inside a pod."""

import subprocess

from tests.cluster.jobs import Job

STANDBY = "hvd_elastic.worker.standby.standby"
"""In the command line of the product's training processes, and of the standbys that would become one."""


def kill_training(job: Job, pod: str, program: str = STANDBY) -> bool:
    """SIGKILL the processes of a worker that have `program` in their command line; whether there was one."""
    script = (
        "import os, pathlib, signal\n"
        "for file in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
        f"    if {program.encode()!r} in file.read_bytes() and int(file.parent.name) not in (1, os.getpid()):\n"
        "        os.kill(int(file.parent.name), signal.SIGKILL)\n"
        "        print('killed', file.parent.name)\n"
    )
    argv = job.kubectl.argv("exec", pod, "--container=worker", "--", "python3", "-S", "-c", script)
    done = subprocess.run(argv, text=True, capture_output=True, check=False, timeout=30)
    return "killed" in done.stdout
