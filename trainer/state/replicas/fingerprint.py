"""A number of 64 bits that tells tensors from others, computed where they are.

The bytes are summed as words of 64 bits in COLUMNS columns, and the columns are summed with a random weight each, all
modulo 2^64. That reads memory once, in integers: the result depends neither on the order of a device's threads nor on
rounding. It finds every change of one word, such as a flipped bit. It is against faults, not against forgers.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import torch

from hvd_elastic.trainer.state.state_tree import raw_bytes

COLUMNS: Final = 1024
_WORD: Final = 8
_ROW: Final = COLUMNS * _WORD
_PACK_BYTES: Final = 256 << 10
"""Smaller tensors are summed together: a call costs more than their bytes."""
_MODULUS: Final = 1 << 64
_FACTOR: Final = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, made odd: sums of several tensors are told apart by their order."""


def fingerprint(tensors: Iterable[torch.Tensor]) -> int:
    """Return a number from -2^63 to 2^63 - 1: the same for the same bytes in the same order.

    Args:
        tensors: dense ones, on any devices.
    """
    sums: dict[torch.device, list[torch.Tensor]] = {}
    packs: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        content = raw_bytes(tensor)
        if content.numel() < _PACK_BYTES:
            packs.setdefault(tensor.device, []).append(content)
        else:
            sums.setdefault(tensor.device, []).append(_sum(content))
    for device, pack in packs.items():
        sums.setdefault(device, []).append(_sum(torch.cat(pack)))
    total = 0
    for on_device in sums.values():  # waits once for each device
        for each in torch.stack(on_device).tolist():
            total = (total * _FACTOR + each) % _MODULUS
    return total - _MODULUS if total >= _MODULUS // 2 else total


def _sum(content: torch.Tensor) -> torch.Tensor:
    whole = content.numel() - content.numel() % _ROW
    rest = content.new_zeros(_ROW)
    rest[: content.numel() - whole] = content[whole:]
    columns = rest.view(torch.int64)
    if whole:
        columns = columns + _words(content[:whole]).view(-1, COLUMNS).sum(0)
    return (columns * _weights(content.device)).sum()


def _words(content: torch.Tensor) -> torch.Tensor:
    """A view, or a copy where the bytes begin at an address that is no multiple of a word."""
    return (content if content.data_ptr() % _WORD == 0 else content.clone()).view(torch.int64)


@lru_cache(maxsize=16)
def _weights(device: torch.device) -> torch.Tensor:
    """Odd numbers, so that no change of one column is lost modulo 2^64."""
    generator = torch.Generator().manual_seed(1)
    return (torch.randint(-(1 << 62), 1 << 62, (COLUMNS,), generator=generator) * 2 + 1).to(device)
