import torch
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.state.replicas.fingerprint import fingerprint
from hvd_elastic.trainer.state.state_tree import raw_bytes

SIZES = (1, 7, 2048, 65536, 100_001, 300_000)
"""Elements: of tensors that are packed and of those that are not, with and without a row that is not full."""


def some(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


@given(size=st.sampled_from(SIZES), bit=st.integers(0, 31), data=st.data())
def test_any_flipped_bit_shows(size: int, bit: int, data: st.DataObject) -> None:
    one, other = some(size), some(size)
    assert fingerprint([one]) == fingerprint([other])
    other.view(torch.int32)[data.draw(st.integers(0, size - 1))] ^= torch.tensor(1 << bit).to(torch.int32)
    assert fingerprint([one]) != fingerprint([other])


def test_where_bytes_lie_in_memory_does_not_matter() -> None:
    for size in SIZES:
        own = some(size)
        held = torch.empty(size + 1)
        held[1:] = own  # at an address that is no multiple of a word
        wide = torch.empty(size, 2)
        wide[:, 0] = own
        assert len({fingerprint([each]) for each in (own, held[1:], wide[:, 0])}) == 1


def test_the_order_of_tensors_shows() -> None:
    one, other = some(9, seed=1), some(100_000, seed=2)
    third = some(100_000, seed=3)
    assert fingerprint([one, other, third]) != fingerprint([one, third, other])


def test_any_type_has_one() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.int8, torch.bool):
        tensor = some(50).to(dtype)
        assert fingerprint([tensor, torch.zeros((), dtype=dtype)]) == fingerprint(
            [tensor.clone(), raw_bytes(tensor)[:0], torch.zeros((), dtype=dtype)]
        )
    assert fingerprint([]) == 0


def test_the_same_number_not_a_number_is_alike() -> None:
    assert fingerprint([torch.tensor([torch.nan])]) == fingerprint([torch.tensor([torch.nan])])
