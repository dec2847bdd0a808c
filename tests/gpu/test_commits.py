"""Commits from a GPU: pinned memory, copies on a stream of their own, and what they wait for."""

import time
from collections.abc import Callable

import pytest
import torch

from hvd_elastic.trainer.state.memory.host_memory import VERIFIED_COMMITS, HostMemory
from hvd_elastic.trainer.state.state_tree import Tree, leaves
from hvd_elastic.trainer.telemetry.loss_reading import LossReading
from tests.gpu.machine import devices

STATE_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}
TENSORS = 16


def everything(_: torch.Tensor) -> bool:
    return True


def nothing(_: torch.Tensor) -> bool:
    return False


class QueuedWork:
    """Half a second of a GPU's time, asked for and not over; on a CPU what was asked for is done."""

    def __init__(self, device: str) -> None:
        self._end: torch.cuda.Event | None = None
        if device == "cuda":
            torch.cuda._sleep(1_000_000_000)  # type: ignore[no-untyped-call]  # cycles
            self._end = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._end.record()

    @property
    def is_over(self) -> bool:
        return self._end is None or bool(self._end.query())  # type: ignore[no-untyped-call]


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str, float], None]:
    """Tell a time in the summary of `make test-gpu`; nothing is asserted of it."""
    return lambda name, seconds: record_property(name, f"{seconds * 1e3:.1f} ms")


@pytest.mark.parametrize("device", devices())
def test_a_commit_is_in_pinned_memory(device: str) -> None:
    """A commit is in pinned memory, without which a copy from a GPU would hold the host up."""
    copy = HostMemory().save({"weight": torch.ones(1000, device=device)}, deferrable=nothing)
    assert copy["weight"].device.type == "cpu"
    assert copy["weight"].is_pinned() is (device == "cuda")


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("overlap", [False, True])
def test_a_commit_waits_for_the_computation_before_it_and_the_host_for_nothing(device: str, overlap: bool) -> None:
    """A commit holds what the queued computation will have made, and does not wait until it has."""
    weight, host = torch.ones(1000, device=device), HostMemory(overlap=overlap)
    host.save({"weight": weight}, deferrable=nothing)  # pinned memory is taken: that alone may wait
    host.save({"weight": weight}, deferrable=nothing)
    host.wait()
    for _ in range(VERIFIED_COMMITS):  # the first deferred copies are compared, for which the host waits
        host.save({"weight": weight}, deferrable=everything)
        host.wait()
    before = QueuedWork(device)
    weight.add_(1)
    copy = host.save({"weight": weight}, deferrable=everything)
    host.fence()
    weight.add_(1)
    assert before.is_over is (device == "cpu")
    host.wait()
    assert before.is_over
    assert copy["weight"].tolist() == [2.0] * 1000
    assert weight.tolist() == [3.0] * 1000


@pytest.mark.parametrize("device", devices())
def test_a_commit_of_a_large_state_does_not_hold_the_computation_up(
    device: str, figure: Callable[[str, float], None]
) -> None:
    """With `overlap`, the next step computes while a state of 1 GiB (CPU: 64 MiB) is copied."""
    host, elements = HostMemory(overlap=True), STATE_BYTES[device] // TENSORS // 4
    tree: Tree = {str(number): torch.full((elements,), float(number), device=device) for number in range(TENSORS)}
    for _ in range(VERIFIED_COMMITS + 1):
        host.save(tree, deferrable=everything)
        host.wait()
    inputs = torch.full((64, 64), 2.0, device=device)
    (inputs @ inputs).sum().item()  # the kernels and their libraries are loaded

    began = time.perf_counter()
    copy = host.save(tree, deferrable=everything)
    figure("save() returned after", time.perf_counter() - began)
    computed = (inputs @ inputs).sum()
    if device == "cuda":
        # Not by `item()`: its four bytes would wait for the engine that copies the gigabyte.
        torch.cuda.current_stream().synchronize()
        assert not host.done, "the computation has waited for the copies: they are on no stream of their own"
    host.fence()
    for tensor in tree.values():
        tensor.add_(100)  # the optimizer's step
    host.wait()
    figure("all was in host memory after", time.perf_counter() - began)
    assert computed.item() == 64 * 64 * 64 * 4
    for number, (_, tensor) in enumerate(leaves(copy)):
        assert bool((tensor == number).all())
        assert bool((tree[str(number)] == number + 100).all())


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("name", ["conjugated", "negated", "transposed", "strided", "half", "empty", "scalar"])
def test_views_are_copied_as_they_read(device: str, name: str) -> None:
    """A view is committed as it reads, though its copy begins long after the call."""
    complex_ = torch.complex(torch.arange(12.0), torch.arange(12.0) + 1).to(device)
    view = {
        "conjugated": complex_.conj(),
        "negated": complex_.conj().imag,
        "transposed": torch.arange(12.0, device=device).reshape(3, 4).t(),
        "strided": torch.arange(12.0, device=device)[::3],
        "half": torch.arange(12.0, device=device).to(torch.float16),
        "empty": torch.empty(0, device=device),
        "scalar": torch.tensor(3.0, device=device),
    }[name]
    expected, host = view.cpu(), HostMemory()
    for _ in range(2):
        host.save({"view": view}, deferrable=nothing)
    QueuedWork(device)
    copy = host.save({"view": view}, deferrable=nothing)
    host.wait()
    assert torch.equal(copy["view"], expected)


@pytest.mark.parametrize("device", devices())
def test_the_loss_is_read_without_waiting_for_the_device(device: str) -> None:
    """A metric of the loss does not wait for the GPU, and has its value once the GPU has."""
    reading, loss = LossReading(), torch.tensor(1.0, device=device)
    QueuedWork(device)
    reading.note(loss + 1)
    first = reading.number()
    assert first == (2.0 if device == "cpu" else None)
    if device == "cuda":
        torch.cuda.synchronize()
    assert reading.number() == 2.0
