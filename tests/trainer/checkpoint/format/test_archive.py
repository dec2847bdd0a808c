import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.trainer.checkpoint.errors import CaptureError, CorruptError
from hvd_elastic.trainer.checkpoint.format.archive import ALIGNMENT, HEAD_BYTES, Payload, restore
from hvd_elastic.trainer.checkpoint.format.capture import Capture
from tests.properties import examples
from tests.trainer.checkpoint.snapshots import same


def archive(snapshot: dict[str, object], *, part: int = 1 << 20) -> torch.Tensor:
    payload = Payload(Capture.take(snapshot))
    whole = bytearray()
    for at in range(0, payload.size_bytes, part):
        piece = bytearray(b"\xff" * min(part, payload.size_bytes - at))
        payload.copy(at, piece)
        whole += piece
    return torch.frombuffer(whole, dtype=torch.uint8).clone()


def there_and_back(snapshot: dict[str, object], *, part: int = 1 << 20) -> dict[str, Any]:
    return restore(archive(snapshot, part=part))


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int64,
    torch.bool,
    torch.complex64,
]

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=40)
keys = st.text(max_size=5) | st.integers() | st.tuples(st.integers(), st.text(max_size=3))
tensors = st.builds(
    lambda dtype, shape, seed: torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(0, 1 << 20),
)
values = st.recursive(
    scalars | tensors,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), values, max_size=5), st.integers(1, 300))
@settings(max_examples=examples(150))
def test_any_snapshot_comes_back_whatever_the_parts(snapshot: dict[str, object], part: int) -> None:
    assert same(there_and_back(snapshot, part=part), snapshot)


def test_a_single_element_out_of_a_larger_tensor_is_stored() -> None:
    """Its stride is not 1, although it counts as row-major."""
    one = torch.arange(6.0).reshape(3, 2)[1:2, 1]
    assert one.is_contiguous()
    assert there_and_back({"one": one})["one"].tolist() == [3.0]


def test_a_training_process_goes_on_from_what_comes_back() -> None:
    model = torch.nn.Linear(5, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(torch.randn(4, 5)).square().sum() + random.random() + np.random.rand()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return float(loss)

    step()
    snapshot: dict[str, object] = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "scaler": scaler.state_dict(),
        "random": (random.getstate(), np.random.get_state(), torch.get_rng_state()),
    }
    values = there_and_back(snapshot)
    expected = [step() for _ in range(3)]
    model.load_state_dict(values["model"])
    optimizer.load_state_dict(values["optimizer"])
    scheduler.load_state_dict(values["scheduler"])
    scaler.load_state_dict(values["scaler"])
    python, numpy, own = values["random"]
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(own)
    assert [step() for _ in range(3)] == expected


def test_a_tensor_that_appears_twice_is_stored_once_and_its_conjugate_apart() -> None:
    weight = torch.randn(1000)
    once, twice = Payload(Capture.take({"a": weight})), Payload(Capture.take({"a": weight, "b": weight}))
    assert twice.size_bytes < once.size_bytes + 200
    number = torch.tensor([1 + 2j])
    assert same(there_and_back({"a": number, "b": number.conj()}), {"a": number, "b": number.conj().resolve_conj()})


def test_tensors_lie_aligned_and_own_their_storage() -> None:
    values = there_and_back({"a": torch.ones(3, dtype=torch.int8), "b": torch.ones(5)})
    for name in "ab":
        tensor = values[name]
        assert isinstance(tensor, torch.Tensor)
        assert tensor.storage_offset() == 0
    assert isinstance(values["b"], torch.Tensor)
    assert values["b"].data_ptr() % ALIGNMENT == 0


def test_every_value_that_needs_pickle_is_named() -> None:
    snapshot = {"a": {"b": [1, object()]}, "f": print, "array": np.array([print]), "sparse": torch.eye(2).to_sparse()}
    with pytest.raises(CaptureError) as caught:
        Capture.take(snapshot)
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0] for line in lines] == ["a.b[1]", "f", "array", "sparse"]


def test_writing_to_a_held_tensor_is_noticed() -> None:
    weight = torch.zeros(10)
    capture = Capture.take({"weight": weight, "copied": weight.reshape(2, 5).t()})
    assert not capture.changed()
    weight[3] = 1
    assert capture.changed()


def test_plain_values_and_copies_are_taken_at_once() -> None:
    history, array = [1], np.zeros(3)
    capture = Capture.take({"history": history, "array": array})
    history.append(2)
    array[0] = 9
    buffer = bytearray(Payload(capture).size_bytes)
    Payload(capture).copy(0, buffer)
    values = restore(torch.frombuffer(buffer, dtype=torch.uint8))
    assert values["history"] == [1]
    assert isinstance(values["array"], np.ndarray)
    assert values["array"].tolist() == [0, 0, 0]


@given(st.binary(max_size=200))
def test_what_is_not_an_archive_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptError):
        restore(torch.frombuffer(bytearray(data or b"x"), dtype=torch.uint8))


@given(st.data())
@settings(max_examples=examples(200))
def test_a_damaged_tree_is_refused_or_harmless(data: st.DataObject) -> None:
    """Digests detect damage earlier. A malicious archive may be refused, but must never crash or run code."""
    whole = archive({"a": torch.ones(4), "b": {"c": (1, 2.5, "x")}})
    length = int.from_bytes(whole[8:16].numpy().tobytes(), "little")
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(8, HEAD_BYTES + length - 1))] = data.draw(st.integers(0, 255))
    try:
        values = restore(whole)
    except CorruptError:
        return
    assert isinstance(values, dict)


def test_a_pickle_is_refused() -> None:
    with pytest.raises(CorruptError, match="does not begin with the archive's magic bytes"):
        restore(torch.frombuffer(bytearray(pickle.dumps({"a": 1})), dtype=torch.uint8))
