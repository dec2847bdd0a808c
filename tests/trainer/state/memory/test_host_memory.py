"""The same logic on every device. With a GPU, tests run on both; device code is in `trainer.state.memory.copies`."""

import threading
import weakref
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from hvd_elastic.trainer.state.memory import copies
from hvd_elastic.trainer.state.memory.copies import Pair
from hvd_elastic.trainer.state.memory.host_memory import VERIFIED_COMMITS, HostMemory, TornCommitError
from hvd_elastic.trainer.state.state_tree import Tree, clone
from tests.gpu.machine import devices

DEVICES = devices()


def anything(_: torch.Tensor) -> bool:
    return True


def nothing(_: torch.Tensor) -> bool:
    return False


def is_done(host: HostMemory) -> bool:
    return host.done


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy even small tensors in the background."""
    monkeypatch.setattr(copies, "SYNCHRONOUS_BYTES", 0)
    monkeypatch.setattr(copies, "BLOCK_BYTES", 16)


def sample_tree(device: str = "cpu") -> Tree:
    return {
        "model": nn.Linear(3, 2).to(device).state_dict(),
        "nested": [{"step": torch.tensor(3), "half": torch.ones(9, dtype=torch.bfloat16, device=device)}, (1, None)],
        "transposed": torch.arange(12.0, device=device).reshape(4, 3).t(),
        "complex": torch.full((5,), 1 + 2j, device=device).conj(),
        "empty": torch.empty(0, device=device),
    }


def check_equal(left: Tree, right: Tree) -> None:
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right)
        assert left.dtype == right.dtype
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key, value in left.items():
            check_equal(value, right[key])
    elif isinstance(left, list | tuple):
        for one, other in zip(left, right, strict=True):
            check_equal(one, other)
    else:
        assert left == right


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("deferrable", [anything, nothing])
@pytest.mark.usefixtures("eager")
def test_a_copy_equals_and_shares_nothing(deferrable: Callable[[torch.Tensor], bool], device: str) -> None:
    tree, host = sample_tree(device), HostMemory(overlap=True)
    expected = clone(tree)
    copy = host.save(tree, deferrable=deferrable)
    host.fence()
    with torch.no_grad():
        for tensor in (tree["nested"][0]["step"], tree["model"]["bias"], tree["transposed"]):
            tensor.add_(1)
    host.wait()
    check_equal(expected, copy)
    assert copy["transposed"].is_contiguous()


@pytest.mark.parametrize("device", DEVICES)
def test_training_on_never_reaches_into_a_commit(device: str) -> None:
    """With real sizes and an optimizer that changes everything: the commit equals the state at the commit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1500, 1500), nn.BatchNorm1d(1500), nn.Linear(1500, 64)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = torch.randn(8, 1500, device=device)
    host = HostMemory(overlap=True)
    optimizer.register_step_pre_hook(lambda *_: host.fence())
    parameters = {tensor.data_ptr() for tensor in model.parameters()}

    def tree() -> Tree:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    addresses = []
    for _ in range(VERIFIED_COMMITS + 3):
        expected = clone(tree())
        copy = host.save(tree(), deferrable=lambda tensor: tensor.data_ptr() in parameters)
        model(batch).square().mean().backward()  # changes BatchNorm's buffers while the parameters are copied
        optimizer.step()
        host.wait()
        check_equal(expected, copy)
        addresses.append({tensor.data_ptr() for tensor in copy["model"].values()})
    assert addresses[2:] == addresses[:-2], "the memory of the commit before the last is used again"


def test_the_memory_of_commits_is_used_again() -> None:
    """The last commit stays as it is while the next one is built, so there are two sets of buffers."""
    tensor, host, addresses = torch.zeros(4), HostMemory(), []
    for number in range(6):
        before = host.last["t"] if number else torch.tensor([-1.0] * 4)
        tensor.fill_(number)
        addresses.append(host.save({"t": tensor}, deferrable=nothing)["t"].data_ptr())
        assert before.tolist() == [number - 1.0] * 4
    assert addresses[:2] * 3 == addresses
    assert len(set(addresses)) == 2


def test_memory_that_is_being_read_is_never_changed() -> None:
    """A slow store reads one commit during many. For so long there is a third set of buffers."""
    tensor, host = torch.zeros(4), HostMemory()
    retained = host.save({"t": tensor}, deferrable=nothing)["t"]
    host.retain()
    addresses = set()
    for number in range(1, 6):
        tensor += 1
        newer = host.save({"t": tensor}, deferrable=nothing, retained=True)["t"]
        assert newer.tolist() == [float(number)] * 4
        assert retained.tolist() == [0.0] * 4
        addresses.add(newer.data_ptr())
    assert addresses.isdisjoint({retained.data_ptr()})
    assert len(addresses) == 2
    memory = weakref.ref(retained)
    del retained, newer
    for _ in range(2):
        host.save({"t": tensor}, deferrable=nothing)
    assert memory() is None, "the third set is given back"


def test_memory_of_what_is_not_saved_any_more_is_given_back() -> None:
    host = HostMemory()
    for number in range(4):
        host.save({str(number): torch.zeros(4)}, deferrable=nothing)
    assert len(host._commit.buffers) == len(host._spare) == 1


def test_tied_weights_are_copied_once() -> None:
    weight = torch.ones(2, 3)
    copy = HostMemory().save({"a": weight, "b": weight.detach(), "c": weight[:1], "d": weight.t()}, deferrable=nothing)
    assert copy["a"] is copy["b"]
    assert len({each.data_ptr() for each in copy.values()}) == 3
    assert copy["d"].shape == (3, 2)


def test_an_empty_tensor_keeps_its_shape() -> None:
    copy = HostMemory().save([torch.empty(0, 3), torch.empty(0), torch.empty(2, 0)], deferrable=nothing)
    assert [tuple(each.shape) for each in copy] == [(0, 3), (0,), (2, 0)]


def test_a_changed_shape_gets_new_memory() -> None:
    host = HostMemory()
    host.save({"t": torch.zeros(4)}, deferrable=nothing)
    assert host.save({"t": torch.ones(2, 3)}, deferrable=nothing)["t"].tolist() == [[1.0] * 3] * 2


@pytest.mark.usefixtures("eager")
def test_fence_waits_for_copies_whose_sources_may_change_next(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, copy = threading.Event(), copies._copy_small

    def slow(pairs: Sequence[Pair]) -> None:
        if pairs:
            assert gate.wait(10)
        copy(pairs)

    monkeypatch.setattr(copies, "_copy_small", slow)
    tensor, host = torch.zeros(3, dtype=torch.uint8), HostMemory(overlap=True)
    saved = host.save({"t": tensor}, deferrable=anything)["t"]
    assert not is_done(host)
    threading.Timer(0.05, gate.set).start()
    host.fence()
    tensor += 1
    host.wait()
    assert is_done(host)
    assert saved.tolist() == [0, 0, 0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.usefixtures("eager")
def test_a_change_behind_the_optimizers_back_is_an_error(device: str) -> None:
    tensors = {name: torch.zeros(40, device=device) for name in ("weight", "bias")}
    host = HostMemory(overlap=True)
    host.save({"layer": tensors}, deferrable=anything)
    for tensor in tensors.values():
        tensor.add_(1)
    message = r"layer\.weight \(and 1 more\) was changed between commit\(\) and the optimizer's step"
    with pytest.raises(TornCommitError, match=message):
        host.wait()
    host.save({"layer": tensors}, deferrable=anything)
    host.wait()


@pytest.mark.parametrize("device", DEVICES)
def test_a_change_past_the_version_counter_is_found_at_the_first_commit(device: str) -> None:
    tensor, host = torch.full((3,), torch.nan, device=device), HostMemory(overlap=True)
    host.save({"weight": tensor}, deferrable=anything)
    host.fence()
    host.save({"weight": tensor}, deferrable=anything)
    tensor.data.mul_(-1)
    tensor.data.zero_()
    with pytest.raises(TornCommitError, match="weight was changed"):
        host.fence()


@pytest.mark.usefixtures("eager")
def test_a_reader_of_the_copy_can_tell_that_it_was_overwritten() -> None:
    """By the version counter, which a copy by numpy would bypass."""
    tensor, host = torch.zeros(40), HostMemory(overlap=True)
    copy = host.save({"t": tensor}, deferrable=anything)["t"]
    host.wait()
    version = copy._version
    host.save({"t": tensor}, deferrable=anything)
    assert host.save({"t": tensor}, deferrable=anything)["t"] is copy
    assert copy._version > version


@pytest.mark.usefixtures("eager")
def test_without_overlap_all_is_copied_at_once() -> None:
    tensor, host = torch.zeros(4), HostMemory()
    saved = host.save({"t": tensor}, deferrable=anything)["t"]
    tensor += 1
    host.fence()
    assert saved.tolist() == [0.0] * 4


def test_a_clone_shares_no_memory() -> None:
    tree = sample_tree()
    copy = clone(tree)
    check_equal(tree, copy)
    copy["nested"][0]["half"].zero_()
    assert tree["nested"][0]["half"].sum() == 9
