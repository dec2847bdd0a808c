"""`hvd-elastic run` with a script that a test holds as text, and what it says, its errors included."""

import os
import subprocess
import sys
from pathlib import Path


def start(
    folder: Path, script: str, *arguments: str, options: tuple[str, ...], **environment: str
) -> subprocess.Popen[str]:
    """Write the script into the folder, and start it with `arguments` and the folder behind them.

    Args:
        folder: where the script may write.
        script: its text.
        arguments: its first arguments.
        options: those of `hvd-elastic run`.
        environment: added to that of the test.
    """
    (folder / "train.py").write_text(script)
    command = ["python", str(folder / "train.py"), *arguments, str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "hvd_elastic.cli", "run", *options, "--", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )


def ended(job: subprocess.Popen[str], seconds: float = 280) -> tuple[int, str]:
    """Wait for a run to end; return its exit code and all that it has said. One that does not end is killed."""
    try:
        said = job.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        job.terminate()
        raise AssertionError(f"the job did not end in {seconds} s\n{job.communicate(timeout=60)[0]}") from None
    return job.returncode, said
