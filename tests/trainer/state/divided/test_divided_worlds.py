"""A model that `fully_shard` has divided, in real worlds of one, two, three and four ranks."""

import subprocess
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict_loader import load as load_folder

from hvd_elastic.trainer.checkpoint.exchange.file_formats import FileFormat, write_file
from hvd_elastic.trainer.state.durable.exported_state import content_of
from hvd_elastic.trainer.state.saved_state import load
from testbed.local import forkserver
from tests.torch_division import needs_division
from tests.trainer.elastic.bare_world import ends, run_cases
from tests.trainer.state.divided import read_by_torch
from tests.trainer.state.divided.divided_cases import is_that_of, plain, reference_after

CASES = Path(__file__).with_name("divided_cases.py")
pytestmark = [pytest.mark.process, pytest.mark.timeout(900), needs_division]


def in_world(size: int, *arguments: str) -> None:
    run_cases([str(CASES), str(size), *arguments], size, HVD_ELASTIC_ENGINE="torch")


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.core), 3, 4])
def test_a_divided_model_is_the_plain_one(size: int) -> None:
    in_world(size)


@pytest.mark.parametrize(("writers", "readers"), [(3, 2), (1, 2), (2, 1)])
def test_a_checkpoint_of_any_size_restores_at_any_other(tmp_path: Path, writers: int, readers: int) -> None:
    in_world(writers, str(tmp_path), "a_durable_checkpoint_is_the_plain_one")
    in_world(readers, str(tmp_path), "it_restores_in_a_world_of_another_size")


def test_a_model_that_was_divided_alone_joins_others() -> None:
    in_world(3, "", "a_model_divided_alone_is_divided_again_with_others")


def test_a_plain_models_checkpoint_restores_divided(tmp_path: Path) -> None:
    in_world(1, str(tmp_path), "a_plain_models_checkpoint")
    in_world(3, str(tmp_path), "it_restores_in_a_world_of_another_size")


def test_torch_alone_reads_what_is_exported(tmp_path: Path) -> None:
    """`checkpoints export --format dcp`, into whatever a script has: whole, divided, or a file of `torch.save`."""
    in_world(2, str(tmp_path / "store"), "a_durable_checkpoint_is_the_plain_one")
    folder = tmp_path / "folder"
    write_file(folder, content_of(load(f"file://{tmp_path}/store")), FileFormat.DCP, facts={}, force=False)
    reference = reference_after(2)

    found = read_by_torch.states(*plain(seed=3))
    load_folder(found, checkpoint_id=folder)
    states = {int(number): values for number, values in found["optimizer"]["state"].items()}
    is_that_of(reference, found["model"], {**found["optimizer"], "state": states})

    dcp_to_torch_save(folder, tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt", weights_only=False)
    for name, value in reference_after(2)[0].state_dict().items():
        assert torch.allclose(whole[f"model.{name}"], value, rtol=1e-4, atol=1e-5)

    script, size = read_by_torch.__file__, 3
    command = [*forkserver.python(), script, str(folder), str(tmp_path / "meeting"), str(size)]
    readers = [subprocess.Popen([*command, str(rank)], text=True, stdout=PIPE, stderr=STDOUT) for rank in range(size)]
    for code, said in map(ends, readers):
        assert code == 0, said
        assert said.endswith("alike\n"), said
