"""Installed, this project has one top-level name, so a user's own `trainer.py` or an SDK's `mpijob` stays usable."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, ROOT, Yard, make_yard

pytestmark = pytest.mark.process


MODULES = ("trainer.py", "discovery.py", "mpijob.py", "priorityclasses.py", "system.py", "worker.py")
PACKAGES = tuple(f"{name.removesuffix('.py')}/__init__.py" for name in MODULES)
OWN_FILES = [pytest.param(MODULES, id="modules"), pytest.param(PACKAGES, id="packages")]
"""Beside the user's script: each holds `MINE`."""

IMPORTS = """
import discovery, mpijob, priorityclasses, system, trainer, worker
from trainer import MINE
import horovod.torch as hvd
import hvd_elastic as elastic
{init}
print(*(module.MINE for module in (discovery, mpijob, priorityclasses, system, trainer, worker)), MINE, flush=True)
"""
PRINTED = "discovery mpijob priorityclasses system trainer worker trainer"

TRAINING = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
state = elastic.State(model=model, optimizer=optimizer)

@elastic.run
def train(state):
    for batch in state.batches([[1.0, 2.0]] * 4, batch_size=2):
        model(torch.stack(batch).T.float() if isinstance(batch, list) else batch.float()).sum().backward()
        optimizer.step()
        state.commit()
    print("trained", state.step_count, elastic.Trainer.__module__, flush=True)

train(state)
"""
TRAINED = "trained 2 hvd_elastic.trainer.fit.trainer"


def write_project(yard: Yard, files: tuple[str, ...], script: str) -> Path:
    for name in files:
        yard.write(f"MINE = {name.partition('/')[0].removesuffix('.py')!r}\n", name)
    return yard.write(script)


def run(*command: str, folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("files", OWN_FILES)
def test_plain_python(yard: Yard, files: tuple[str, ...]) -> None:
    write_project(yard, files, IMPORTS.format(init="elastic.run(print)"))
    environment = {"PYTHONPATH": yard.python_path, "PATH": "/usr/bin:/bin"}
    assert run(sys.executable, "train.py", folder=yard.folder, environment=environment) == f"{PRINTED}\n"


@pytest.mark.parametrize("files", OWN_FILES)
@pytest.mark.parametrize("command", [("python", "train.py"), ("python", "-m", "train")])
@pytest.mark.parametrize("standby", ["init", "off"])
def test_a_worker_that_adopts(yard: Yard, files: tuple[str, ...], command: tuple[str, ...], standby: str) -> None:
    write_project(yard, files, IMPORTS.format(init="hvd.init()"))
    with yard.pod(*command, standby=standby) as pod:
        pod.ready()
        assert ("standby" in pod.log_text) == (standby == "init")
        assert pod.run(cwd=yard.folder) == (0, f"{PRINTED}\n")


@pytest.mark.parametrize("files", OWN_FILES)
def test_plain_python_with_our_state(tmp_path: Path, files: tuple[str, ...]) -> None:
    yard = make_yard(tmp_path, real=True)
    write_project(yard, files, IMPORTS.format(init="elastic.init()") + TRAINING)
    environment = {"PYTHONPATH": yard.python_path, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    output = run(sys.executable, "train.py", folder=yard.folder, environment=environment)
    assert output.splitlines() == [PRINTED, TRAINED]


@pytest.mark.parametrize("verb", [pytest.param("run", marks=pytest.mark.core), "launch"])
def test_the_command_line(tmp_path: Path, verb: str) -> None:
    """`run` starts worker pods' entry points, which adopt; this `launch` starts the script itself."""
    yard = make_yard(tmp_path, real=True)
    write_project(yard, MODULES, IMPORTS.format(init="elastic.init()") + TRAINING)
    discover = tmp_path / "discover"
    discover.write_text("#!/bin/sh\necho localhost:1\n")
    discover.chmod(0o755)
    launch = ["-np", "1", "--max-np", "1", "--host-discovery-script", str(discover), "--network-interface", "lo"]
    flags = {"run": ["--workers", "1", "--"], "launch": [*launch, "--run-dir", str(tmp_path / "run")]}[verb]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": yard.python_path, "PATH": path, "OMP_NUM_THREADS": "1"}
    output = run("hvd-elastic", verb, *flags, "python", "train.py", folder=yard.folder, environment=environment)
    assert PRINTED in output
    assert TRAINED in output


def test_an_sdk_that_installs_a_top_level_mpijob_is_imported_beside_ours(tmp_path: Path) -> None:
    """As the MPI Operator's own Python SDK does."""
    package = tmp_path / "site" / "mpijob" / "models"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("from mpijob.models import V2beta1MPIJob\n")
    (package / "__init__.py").write_text("class V2beta1MPIJob: pass\n")
    code = (
        "import mpijob, hvd_elastic.mpijob.contract as contract\n"
        "from hvd_elastic.mpijob.manifests.render import render\n"
        "print(mpijob.__file__, mpijob.V2beta1MPIJob.__module__, render.__module__, contract.READY_PORT)"
    )
    environment = {"PYTHONPATH": f"{package.parents[1]}:{ROOT}", "PATH": "/usr/bin:/bin"}
    output = run(sys.executable, "-c", code, folder=tmp_path, environment=environment)
    sdk = package.parent / "__init__.py"
    assert output.split() == [str(sdk), "mpijob.models", "hvd_elastic.mpijob.manifests.render", "2223"]


def test_the_wheel_has_one_top_level_package(tmp_path: Path) -> None:
    """uv takes the build backend from its cache if it is there."""
    build = [sys.executable, "-m", "uv", "build", "--wheel", "--out-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    version = wheel.name.split("-")[1]
    assert {name.partition("/")[0] for name in names} == {"hvd_elastic", f"hvd_elastic-{version}.dist-info"}
    assert len(names) == len(set(names))
    assert {
        "hvd_elastic/trainer/elastic/run.py",
        "hvd_elastic/discovery/snapshot.py",
        "hvd_elastic/mpijob/contract.py",
        "hvd_elastic/mpijob/lint/job/mpijob_fields.txt",
        "hvd_elastic/priorityclasses/__init__.py",
        "hvd_elastic/worker/adoption/adopt_client.py",
        "hvd_elastic/py.typed",
    } <= set(names)
    assert [name for name in names if name.endswith("py.typed")] == ["hvd_elastic/py.typed"]
