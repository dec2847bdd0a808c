import subprocess
import sys
from pathlib import Path

import pytest

import hvd_elastic
from hvd_elastic import trainer


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_public_names() -> None:
    of_trainer = ["Computation", "EarlyStop", "Evaluation", "KeepBest", "Moment", "Reporting"]
    values = ["Checkpointing", "Cluster", *of_trainer, "ShardedOptimizer", "State", "Stop", "Trainer"]
    assert hvd_elastic.__all__ == [*values, "agree", "any_rank", "init", "load", "run"]
    for name in hvd_elastic.__all__:
        assert callable(getattr(hvd_elastic, name))
        assert name in dir(hvd_elastic)
    for name in trainer.__all__:
        assert callable(getattr(trainer, name))


def test_an_unknown_name_is_reported_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'hvd_elastic' has no attribute 'Stat'"):
        _ = hvd_elastic.Stat


@pytest.mark.process
def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, hvd_elastic.trainer; print(*{'torch', 'horovod', 'numpy', 'boto3'} & set(sys.modules))"
    assert python(code) == ""


@pytest.mark.process
def test_the_contract_needs_no_other_module() -> None:
    code = "import sys, hvd_elastic.mpijob.contract; print(*sorted(m for m in sys.modules if 'hvd_elastic' in m))"
    ours = python(code).split()
    assert "hvd_elastic.trainer" not in ours
    assert {name for name in ours if name.count(".") > 1} <= {"hvd_elastic.mpijob.contract"}


IMPORTS = [
    pytest.param("import horovod.torch as hvd\nimport hvd_elastic as elastic\n", id="Horovod first"),
    pytest.param("import hvd_elastic as elastic\nimport horovod.torch as hvd\n", id="hvd_elastic first"),
]
LOOK = "print(hvd.init.__dict__.get('patched', False), hvd.elastic.run is elastic.trainer.elastic.run.run)\n"


@pytest.mark.process
@pytest.mark.core
@pytest.mark.parametrize("imports", IMPORTS)
def test_importing_it_leaves_horovod_as_it_is(imports: str) -> None:
    assert python(imports + "import hvd_elastic.trainer.elastic.run\n" + LOOK) == "False False"


@pytest.mark.process
@pytest.mark.parametrize("imports", IMPORTS)
@pytest.mark.parametrize("use", ["elastic.init()\n", "elastic.run(print)\n"])
def test_init_and_run_patch_horovod(imports: str, use: str) -> None:
    assert python(imports + use + LOOK) == "True True"


TRAINING = """
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

@{decorator}
def train(state):
    while state.step < 3:
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        state.step += 1
        if state.step == 2 and not hasattr(state, "was_reset"):
            state.was_reset = True
            raise HorovodInternalError("a peer is lost")
        state.commit()
    print("trained", state.step, "as", hvd.rank(), "of", hvd.size())

train(state)
"""


@pytest.mark.process
@pytest.mark.parametrize("imports", IMPORTS)
@pytest.mark.parametrize(("init", "decorator"), [("hvd.init()", "elastic.run"), ("elastic.init()", "hvd.elastic.run")])
def test_horovods_names_and_ours_mix_in_plain_python(
    imports: str, init: str, decorator: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`hvd.init()` may come before anything has patched it; the reset after it is ours all the same."""
    monkeypatch.setenv("HVD_ELASTIC_EVENTS", str(tmp_path))
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "gloo")
    start = f"import torch\n{imports}from horovod.common.exceptions import HorovodInternalError\n{init}\n"
    assert python(start + TRAINING.format(decorator=decorator)) == "trained 3 as 0 of 1"
    (events,) = tmp_path.glob("*.jsonl")
    assert '"event": "reset"' in events.read_text(), "only our run reports it"
