"""Which tensors belong to a state."""

from types import SimpleNamespace

import torch

from hvd_elastic.trainer.elastic.mistakes.alive import tensors_within


def test_tensors_of_models_optimizers_and_what_holds_them() -> None:
    model, held, other = torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    plain = torch.zeros(1)
    state = SimpleNamespace(
        model=model, optimizer=optimizer, task=SimpleNamespace(nets=[held]), best=[{"at": plain}], step=3, _own=other
    )
    found = {id(tensor) for tensor in tensors_within(state)}
    momentum = [each["momentum_buffer"] for each in optimizer.state.values()]
    wanted = [*model.parameters(), *model.buffers(), *momentum, *held.parameters(), plain]
    assert found >= set(map(id, wanted))
    assert found.isdisjoint(map(id, other.parameters()))
