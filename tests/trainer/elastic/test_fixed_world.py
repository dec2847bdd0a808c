"""When a script that knows torchrun alone is begun again. That it is, with real processes: tests/local."""

import os
from typing import NoReturn

import pytest

from hvd_elastic.trainer.collectives.this_world import TORCH
from hvd_elastic.trainer.elastic import fixed_world
from hvd_elastic.trainer.elastic.fixed_world import FixedWorld

LOST = RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1")


class BegunAgainError(Exception):
    """This process was replaced."""


def replace() -> NoReturn:
    raise BegunAgainError


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> FixedWorld:
    monkeypatch.setattr(fixed_world, "leave_nothing_open", lambda: None)
    monkeypatch.setattr(fixed_world, "WORLD", TORCH)
    monkeypatch.setenv("HVD_ELASTIC_RESTARTS", "0")
    made = FixedWorld()
    made.allow(replace)
    made.is_fixed = True
    return made


def with_cause(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [LOST, with_cause(ValueError("no more batches"), LOST)])
def test_a_lost_peer_begins_the_script_again(world: FixedWorld, error: Exception) -> None:
    with pytest.raises(BegunAgainError):
        world.begin_again_if_lost(error)
    assert os.environ["HVD_ELASTIC_RESTARTS"] == "1"
    with pytest.raises(BegunAgainError):
        world.begin_again_if_lost(error)
    assert os.environ["HVD_ELASTIC_RESTARTS"] == "2"


@pytest.mark.parametrize("error", [ValueError("mine"), RuntimeError("mine"), KeyboardInterrupt()])
def test_an_error_of_the_script_s_own_ends_it(world: FixedWorld, error: BaseException) -> None:
    world.begin_again_if_lost(error)


def test_a_script_that_came_to_elastic_run_is_not_begun_again(world: FixedWorld) -> None:
    world.end()
    world.begin_again_if_lost(LOST)


def test_without_a_launcher_the_world_is_nobody_s(world: FixedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", raising=False)
    world.is_fixed = False
    world.begin()
    assert not world.is_fixed
