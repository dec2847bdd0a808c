"""What a world over torch.distributed has beside what every training world promises (`test_training_world.py`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_elastic.trainer.collectives.torch_engine.torch_world import TorchTrainingWorld
from hvd_elastic.trainer.collectives.torch_engine.torchrun_environment import torchrun_variables


def test_a_script_finds_what_torchrun_tells() -> None:
    place = {"RANK": "5", "SIZE": "8", "LOCAL_RANK": "1", "LOCAL_SIZE": "2", "CROSS_RANK": "2", "CROSS_SIZE": "4"}
    launcher = {"GLOO_RENDEZVOUS_ADDR": "[fd00::1]", "GLOO_RENDEZVOUS_PORT": "4321"}
    environment = {f"HOROVOD_{name}": value for name, value in (place | launcher).items()}
    told = torchrun_variables({**environment, "HVD_ELASTIC_JOB": "digits"}, restarts=3)
    assert told == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "2",
        "MASTER_ADDR": "fd00::1",
        "MASTER_PORT": "4321",
        "TORCHELASTIC_RUN_ID": "digits",
        "TORCHELASTIC_RESTART_COUNT": "3",
    }
    assert torchrun_variables({}, restarts=0)["WORLD_SIZE"] == "1"


@pytest.mark.parametrize(
    ("words", "is_lost"),
    [
        ("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:1", True),
        ("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 30000ms for recv operation to complete", True),
        ("Application timeout caused pair closure", True),
        ("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", False),
        ("Expected to have finished reduction in the prior iteration before starting a new one.", False),
    ],
)
def test_a_peers_loss_is_told_from_the_scripts_own_error(words: str, is_lost: bool) -> None:
    world = TorchTrainingWorld()
    assert world.is_loss(RuntimeError(words)) is is_lost
    assert not world.is_loss(ValueError(words))


MEMBER = """
import sys
from datetime import timedelta

import torch
from torch.distributed import FileStore

from hvd_elastic.trainer.collectives.torch_engine import torch_world
from hvd_elastic.trainer.collectives.training_world import ReduceOp, UnformedWorldError

stores = iter(sys.argv[1:])
world = torch_world.TorchTrainingWorld()
world.begin_with(lambda form: form(), lambda: FileStore(next(stores), 2), lambda: None)
if len(sys.argv) > 2:
    torch_world.FORM_TIMEOUT = timedelta(seconds=1)
    try:
        world.init()
    except UnformedWorldError:
        pass
    else:
        sys.exit("a world of two has formed with one")
torch_world.FORM_TIMEOUT = timedelta(seconds=60)  # this store, unlike the product's, waits no longer than it is told to
world.init()
print(int(world.allreduce(torch.tensor([world.rank() + 1]), op=ReduceOp.SUM, name="sum")))
"""
"""Of a world of two; with two stores nobody else comes to the first."""


@pytest.mark.process
@pytest.mark.core
def test_a_newcomer_meets_a_member_whose_world_did_not_form(tmp_path: Path) -> None:
    lost, formed = str(tmp_path / "lost"), str(tmp_path / "formed")
    place = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_SIZE": "2", "HVD_ELASTIC_ENGINE": "torch"}
    members = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, *stores],
            env=os.environ | place | {"HOROVOD_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, stores in enumerate(([lost, formed], [formed]))
    ]
    try:
        assert [member.communicate(timeout=100)[0].strip() for member in members] == ["3", "3"]
        assert [member.returncode for member in members] == [0, 0], "no thread of a world ends its process at the end"
    finally:
        for member in members:
            member.kill()
