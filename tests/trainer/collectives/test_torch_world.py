"""What a world over torch.distributed has beside what every training world promises (`test_training_world.py`)."""

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
