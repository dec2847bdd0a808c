"""What a sync sends, and to which worker: two real workers under a static horovodrun."""

import os
import subprocess
from pathlib import Path

import pytest

from testbed.local import forkserver
from testbed.local.harness import HOROVODRUN

CASES = Path(__file__).with_name("sync_cases.py")


@pytest.mark.core
@pytest.mark.process
def test_a_sync_leaves_all_with_the_newest_commit(tmp_path: Path) -> None:
    command = [*HOROVODRUN, "--gloo", "-np", "2", "--network-interface", "lo"]
    done = subprocess.run(
        [*command, *forkserver.python(), str(CASES)],
        env={**os.environ, "PYTHONPATH": str(CASES.parents[2]), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(":ok ") == 14
