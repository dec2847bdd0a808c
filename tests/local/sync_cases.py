"""Run on two workers: each case leaves both with the same state, and says so with an assert."""

import os
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from horovod.common.exceptions import HostsUpdatedInterrupt
from torch import nn

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT_WARM_START
from hvd_elastic.trainer import agree, init
from hvd_elastic.trainer.state import broadcast
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.state.state_tree import leaves


def everywhere_equal(state: State) -> None:
    tree = state._present.tree()
    mine = [tensor for part in ("objects", "values") for _, tensor in leaves(tree[part])]
    for tensor in mine:
        both = hvd.allgather(tensor.detach().double().reshape(1, -1).contiguous())
        assert torch.equal(both[0], both[1])
    plain = tree["values"]
    values = hvd.allgather_object({name: value for name, value in plain.items() if name != "table"})
    assert values[0] == values[1]


def trained(optimizer_class: Any, steps: int, **options: Any) -> State:
    """A state of this worker's own, after some steps of this worker alone."""
    torch.manual_seed(hvd.rank())
    model = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300), nn.Linear(300, 2))
    optimizer = optimizer_class(model.parameters(), lr=0.01, **options)
    for _ in range(steps):
        optimizer.step(lambda: loss_of(model, optimizer))
    table = torch.arange(6.0).reshape(2, 3).t().to(torch.bfloat16) * (hvd.rank() + 1)
    return State(model=model, optimizer=optimizer, name=f"rank {hvd.rank()}", table=table)


def loss_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(8, 300)).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def the_first_sync_takes_rank_0() -> None:
    state = trained(torch.optim.AdamW, steps=2 if hvd.rank() == 0 else 0, weight_decay=0.1)
    state.sync()
    everywhere_equal(state)
    assert state.name == "rank 0"
    assert state.table.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert state.optimizer.state[next(state.model.parameters())]["step"].item() == 2


def a_newcomer_receives_what_it_has_no_place_for() -> None:
    for kind in (torch.optim.LBFGS, torch.optim.SparseAdam, torch.optim.Adagrad):
        steps = 0 if hvd.rank() == 1 or kind is torch.optim.SparseAdam else 2
        state = trained(kind, steps=steps)
        state.sync()
        everywhere_equal(state)


def the_newest_commit_wins() -> None:
    """The members may have different last commits after a death: the member with the newest one sends."""
    state = trained(torch.optim.SGD, steps=1, momentum=0.9)
    state.sync()
    if hvd.rank() == 1:
        state.optimizer.step(lambda: loss_of(state.model, state.optimizer))
        state.name = "further"
        state._present.progress.commits += 1
        state.save()
    else:
        state.name = "uncommitted"
        state.restore()
    state.sync()
    everywhere_equal(state)
    assert state.name == "further"
    assert state.step_count == 1
    state.restore()
    assert state.name == "further"


def what_all_hold_is_not_sent() -> None:
    state = trained(torch.optim.SGD, steps=1)
    state.sync()
    state.commit()
    sent: list[int] = []
    send, broadcast._send = broadcast._send, lambda *_: sent.append(1)
    try:
        state.sync()
    finally:
        broadcast._send = send
    assert not sent


def a_notice_that_one_worker_heard_of_reaches_all() -> None:
    state = State()
    state.sync()
    if hvd.rank() == 1:
        state.on_hosts_updated(1, None)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()


def all_agree_on_what_rank_0_says() -> None:
    assert agree({"accuracy": 0.5 + hvd.rank(), "why": ("a", hvd.rank())}) == {"accuracy": 0.5, "why": ("a", 0)}
    assert agree(hvd.rank() == 0) is True
    assert agree(None if hvd.rank() == 0 else 1) is None


def a_warm_start_reaches_all() -> None:
    """Rank 0 alone reads the file: who has none sees none."""
    theirs = nn.Linear(2, 3)
    nn.init.constant_(theirs.weight, 7.0)
    if hvd.rank() == 0:
        torch.save(theirs.state_dict(), "theirs.pt")
        os.environ[ENV_CHECKPOINT_WARM_START] = f"file://{Path.cwd()}/theirs.pt"
    torch.manual_seed(hvd.rank())
    state = State(model=nn.Linear(2, 3), checkpoint=f"file://{Path.cwd()}/store")
    try:
        state.sync()
        everywhere_equal(state)
        assert torch.equal(state.model.weight, theirs.weight)
    finally:
        os.environ.pop(ENV_CHECKPOINT_WARM_START, None)
        state._commits.durable.close()


init()
assert hvd.size() == 2
for case in (
    the_first_sync_takes_rank_0,
    a_newcomer_receives_what_it_has_no_place_for,
    the_newest_commit_wins,
    what_all_hold_is_not_sent,
    a_notice_that_one_worker_heard_of_reaches_all,
    all_agree_on_what_rank_0_says,
    a_warm_start_reaches_all,
):
    case()
    print("ok", case.__name__, hvd.rank(), flush=True)
