"""docs/from-torchrun.md: its lines are those of the scripts, and what it has one type happens, without Horovod."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.failing_threads import wait_for

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "from-torchrun.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples"
WITHOUT_HOROVOD = 'import sys\nsys.modules["horovod"] = None\n'
"""As `sitecustomize.py`: whoever imports Horovod fails, in each process of a job."""


def typed(beginning: str) -> str:
    """The command that begins so, of what the page has one type to see the script survive."""
    section = PAGE.partition("## See it survive")[2]
    (command,) = [line.strip() for line in section.splitlines() if line.startswith(f"    {beginning}")]
    return command


def test_the_lines_that_change_are_those_of_the_scripts() -> None:
    block = re.search(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    before, after = ((EXAMPLES / name).read_text().splitlines() for name in ("digits_torchrun.py", "digits_ddp.py"))
    shown = [(line[0], line[1:]) for line in block[1].splitlines() if line[1:].strip() != "..."]
    old, new = ([line for sign, line in shown if sign in f" {own}"] for own in "-+")
    assert old == in_order(before, old)
    assert new == in_order(after, new)
    assert not {line for sign, line in shown if sign == "+"} & set(before)
    assert not {line for sign, line in shown if sign == "-"} & set(after)


def in_order(lines: list[str], wanted: list[str]) -> list[str]:
    """Those of `wanted` that are found in `lines`, each behind the one before."""
    rest = iter(lines)
    return [line for line in wanted if line in rest]


def processes(mark: str, pattern: str) -> Iterator[psutil.Process]:
    """Of this test's job, those whose command line the page's pattern finds, as `pkill -f` does."""
    for process in psutil.process_iter(["environ", "cmdline"]):
        is_ours = (process.info["environ"] or {}).get("HVD_ELASTIC_TEST_MARK") == mark
        if is_ours and re.search(pattern, " ".join(process.info["cmdline"] or ())):
            yield process


@pytest.mark.process
@pytest.mark.timeout(2000)
def test_it_survives_resizes_and_a_killed_process(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_HOROVOD)
    environment = os.environ | {
        "HVD_ELASTIC_TEST_MARK": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    arguments = [word.replace("$PWD", str(tmp_path)) for word in shlex.split(typed("hvd-elastic run"))]
    log = tmp_path / "log"
    with log.open("w") as output:
        job = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment)
    try:
        wait_for(lambda: "-> 4: " in log.read_text() or job.poll() is not None, 600)
        (pattern,) = shlex.split(typed("pkill"))[4:]
        newest = max(processes(str(tmp_path), pattern), key=psutil.Process.create_time)
        newest.kill()
        assert job.wait(1200) == 0, log.read_text()
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait()
    said = log.read_text()
    assert "world of 4: " in said
    assert "world 4 -> 1: " in said
    assert "signal 9 (SIGKILL)" in said
    (verify,) = [shlex.split(typed("hvd-elastic checkpoints verify"))]
    asked = [word.replace("$PWD", str(tmp_path)) for word in verify]
    done = subprocess.run(asked, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"whole +train, .*\b1,438 samples once", done.stdout.splitlines()[-1]), done.stdout
