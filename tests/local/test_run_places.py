"""`hvd-elastic run` and `demo` where something is in the way: one sentence before the first step, or none is needed."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.failing_threads import wait_for

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
RUN = (sys.executable, "-m", "hvd_elastic.cli", "run", "--workers", "1")
OFF = (*RUN, "--standby", "off", "--")
"""A job without a standby: the fastest there is."""


def answer(
    *argv: str, folder: Path | None = None, also: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """What a command answers in this `folder`. `also`: further variables of its environment."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **also}
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False)


def elsewhere(
    kind: str, preparation: str, *argv: str, also: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """What a command answers in a new namespace of this `kind`, after a preparation. Skips where that needs root."""
    if answer("unshare", kind, "true").returncode:
        pytest.skip("a namespace of its own needs root")
    return answer("unshare", kind, "sh", "-c", f'{preparation}; exec "$@"', "sh", *argv, also=also)


def assert_one_sentence(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


HOLDING_PORT = """\
import socket, subprocess, sys
with socket.create_server(("", 2223)):
    sys.exit(subprocess.call(sys.argv[1:]))
"""


def test_a_port_that_is_taken_on_all_addresses_is_not_needed() -> None:
    done = elsewhere("--net", "ip link set lo up", sys.executable, "-c", HOLDING_PORT, *OFF, "echo", "it ran")
    assert (done.returncode, "it ran" in done.stdout) == (0, True), done.stderr


def test_a_loopback_interface_that_is_down_is_said() -> None:
    done = elsewhere("--net", "true", *OFF, "true")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: no loopback address can be used (Network is unreachable)")


def test_a_host_whose_own_name_does_not_resolve_is_said() -> None:
    """With a Horovod that looks it up, as it is published."""
    found = "import hvd_elastic.horovod.patch_set as them; them.installed_patches = lambda: ()"
    run = f"{found}; from hvd_elastic.cli import main; main()"
    done = elsewhere("--uts", "hostname nowhere.invalid", sys.executable, "-c", run, *OFF[3:], "true")
    assert_one_sentence(done, "'nowhere.invalid': does not resolve", "/etc/hosts")


FORMS_A_WORLD = "import horovod.torch as hvd; hvd.init(); print('size', hvd.size())"


@pytest.mark.needs_patch("process-set-interface")
def test_a_host_whose_own_name_does_not_resolve_trains() -> None:
    done = elsewhere("--uts", "hostname nowhere.invalid", *OFF, sys.executable, "-c", FORMS_A_WORLD)
    assert (done.returncode, "size 1" in done.stdout) == (0, True), done.stderr


def test_a_temporary_folder_without_programs_is_said(tmp_path: Path) -> None:
    mounting = f"mount -t tmpfs -o noexec none {tmp_path}"
    done = elsewhere("--mount", mounting, *OFF, "true", also={"TMPDIR": str(tmp_path)})
    assert_one_sentence(done, f"{tmp_path} is mounted noexec", "set TMPDIR")


def test_what_a_killed_run_has_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    killed = subprocess.Popen([*OFF, "sleep", "1000"], env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: any(tmp_path.glob("hvd-elastic-*/owner")), seconds=120)
        killed.send_signal(signal.SIGSTOP)
        (folder,) = tmp_path.glob("hvd-elastic-*")
        assert answer(*OFF, "true", also={"TMPDIR": str(tmp_path)}).returncode == 0
        assert list(tmp_path.glob("hvd-elastic-*")) == [folder], "of a run that lives nothing is taken"
    finally:
        killed.kill()
        killed.wait()
    assert folder.exists()

    assert answer(*OFF, "true", also={"TMPDIR": str(tmp_path)}).returncode == 0
    assert list(tmp_path.glob("hvd-elastic-*")) == []


def test_a_warm_up_that_takes_too_long_shows_what_was_printed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('reading 10^9 \\033[31mfiles', flush=True)\ntime.sleep(1000)\n")
    done = answer(*RUN, "--elastic-timeout", "60", "--", "python", str(script), also={"TMPDIR": str(tmp_path)})
    assert done.returncode == 1
    assert "0 of 1 workers were ready after 60 s" in done.stderr
    assert "The last lines of local-worker-0:\n" in done.stderr
    assert "reading 10^9" in done.stderr
    assert "\033" not in done.stderr
    assert str(tmp_path / "hvd-elastic-") not in done.stderr, "a folder that is gone"


TORCH = """\
import builtins
if hasattr(builtins, "torch_began"):
    raise ImportError("torch can only be initialized once per process")
builtins.torch_began = True
raise ImportError("libcudart.so.12: cannot open shared object file")
"""


def test_of_a_torch_that_cannot_be_imported_the_first_message_is_shown(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    (tmp_path / "train.py").write_text("import torch\n")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    done = answer(*RUN, "--", "python", str(tmp_path / "train.py"), also={"PYTHONPATH": path})
    assert done.returncode == 1
    assert "hvd-elastic: ImportError: libcudart.so.12: cannot open shared object file" in done.stdout + done.stderr


def test_a_checkpoint_where_nothing_can_be_written_is_said() -> None:
    done = answer(*RUN, "--checkpoint", "file:///proc/checkpoints", "--", "true")
    assert_one_sentence(done, "'file:///proc/checkpoints': cannot be written (")


def test_a_demo_whose_report_cannot_be_written_is_said() -> None:
    pytest.importorskip("sklearn")
    done = answer(sys.executable, "-m", "hvd_elastic.cli", "demo", folder=Path("/proc"))
    assert_one_sentence(done, "--output: 'out/demo': cannot be written (")


@pytest.mark.parametrize("verb", ["run", "demo"])
def test_a_current_folder_that_was_deleted_is_said(verb: str, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    words = (*OFF, "true") if verb == "run" else (sys.executable, "-m", "hvd_elastic.cli", "demo")
    done = answer("sh", "-c", f'rmdir {folder}; exec "$@"', "sh", *words, folder=folder)
    assert_one_sentence(done, "No such file or directory")


def test_no_command_at_all_is_said() -> None:
    assert_one_sentence(answer(*RUN), "command: is missing: name the program", "-- python train.py")


SCRIPT = """\
import sys
import time
import horovod.torch as hvd
import torch
import hvd_elastic as elastic

elastic.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())

@elastic.run
def train(state):
    while state.step < int(sys.argv[1]):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.step += 1
        print("step", state.step, flush=True)
        time.sleep(0.05)
        state.commit()

train(elastic.State(model=model, optimizer=optimizer, step=0))
"""


def test_of_two_runs_with_one_checkpoint_the_first_is_told_and_does_not_succeed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [*RUN, "--checkpoint", f"file://{tmp_path}/checkpoints", "--", "python", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "1000000"], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as first:
        assert first.stdout is not None
        try:
            next(line for line in first.stdout if "step 5" in line)
            assert answer(*command, "5", also={"OMP_NUM_THREADS": "1"}).returncode == 0
            output = first.communicate(timeout=120)[0]
        finally:
            first.terminate()
    assert first.returncode == 1, output
    assert "has claimed the checkpoints" in output
