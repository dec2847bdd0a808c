import itertools
import os
import subprocess
from pathlib import Path

import pytest

from hvd_elastic.local.launcher_commands import launcher_command, link_address
from hvd_elastic.local.local_cluster import prepare_run_dir
from hvd_elastic.local.local_environment import local_environment
from hvd_elastic.mpijob.contract import ENV_RUN_DIR
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job


def job(**values: object) -> JobSpec:
    given = {"name": "job", "command": ["python", "train.py", "--name", "a b"], "workers": "1:2:4", "workers.slots": 2}
    return read_job(None, given | values)


@pytest.mark.parametrize("launcher", ["launch", "horovodrun"])
def test_both_launchers_get_the_same_flags_in_processes(launcher: str, tmp_path: Path) -> None:
    argv = launcher_command(job(launcher=launcher), tmp_path, {"PATH": "/bin"}).argv

    flags = dict(itertools.pairwise(argv))
    assert (flags["-np"], flags["--min-np"], flags["--max-np"], flags["--slots-per-host"]) == ("4", "2", "8", "2")
    assert flags["--host-discovery-script"] == str(tmp_path / "discover-hosts")
    assert argv[-4:] == ("python", "train.py", "--name", "a b")


def test_horovodrun_finds_an_ssh_that_runs_the_command_in_the_hosts_own_folder(tmp_path: Path) -> None:
    prepare_run_dir(tmp_path)
    (tmp_path / "w-0").mkdir()
    link_address(tmp_path, "w-0", "127.3.2.1")
    command = launcher_command(job(launcher="horovodrun"), tmp_path, {"PATH": os.environ["PATH"]})

    # As horovod/runner/util/remote.py writes it: through a shell, the command as one quoted word.
    line = f"ssh -o PasswordAuthentication=no -o StrictHostKeyChecking=no 127.3.2.1    'echo ${ENV_RUN_DIR}; echo $0 x'"
    done = subprocess.run(line, shell=True, env=dict(command.environment), capture_output=True, text=True, check=True)

    run_dir = Path(done.stdout.splitlines()[0])
    assert run_dir.resolve() == (tmp_path / "w-0").resolve()
    assert done.stdout.splitlines()[1].endswith("sh x")


def test_the_environment_is_the_contracts_with_local_values(tmp_path: Path) -> None:
    spec = job(batch=256, env={"A": "b"}, **{"data.claim": "c", "data.local": str(tmp_path)})

    environment = local_environment(spec, {"PATH": "/bin", "HOME": "/root"})

    assert environment["HVD_ELASTIC_BATCH_GLOBAL"] == "256"
    assert environment["HVD_ELASTIC_SLOTS"] == "2"
    assert environment["HVD_ELASTIC_DATA"] == str(tmp_path)
    assert environment["A"] == "b"
    assert environment["PATH"].endswith(":/bin")
    assert "HVD_ELASTIC_CHECKPOINT" not in environment


def test_the_job_says_what_it_trains_over_and_not_what_is_inherited() -> None:
    torch = {"HVD_ELASTIC_ENGINE": "torch"}
    assert local_environment(job(), torch)["HVD_ELASTIC_ENGINE"] == "horovod"
    assert local_environment(job(engine="torch", launcher="launch"), {})["HVD_ELASTIC_ENGINE"] == "torch"


def test_the_users_own_number_of_threads_stands() -> None:
    assert local_environment(job(), {"OMP_NUM_THREADS": "7"})["OMP_NUM_THREADS"] == "7"
    assert int(local_environment(job(), {})["OMP_NUM_THREADS"]) >= 1
