"""What is told of an archive from its first bytes alone."""

import collections
import enum
import json
from importlib.metadata import version

import numpy as np
import pytest
import torch

from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.format.archive import HEAD_BYTES, Payload, head_bytes, outline, restore
from hvd_elastic.trainer.checkpoint.format.capture import Capture


class Phase(enum.Enum):
    WARM = 1


Point = collections.namedtuple("Point", ["x", "y"])


def archive(snapshot: dict[str, object]) -> torch.Tensor:
    payload = Payload(Capture.take(snapshot))
    whole = bytearray(payload.size_bytes)
    payload.copy(0, whole)
    return torch.frombuffer(whole, dtype=torch.uint8)


def test_the_head_is_enough() -> None:
    tied = torch.zeros(3, 1 << 16, dtype=torch.bfloat16)
    whole = archive({"a": tied, "b": tied, "array": np.zeros((1000, 1000)), "epoch": 3, "list": [torch.ones(())]})
    end = head_bytes(whole[:HEAD_BYTES])
    assert end < 2000 < whole.numel()
    values = outline(whole[:end]).values
    a, array = values["a"], values["array"]
    assert isinstance(a, torch.Tensor)
    assert isinstance(array, np.ndarray)
    assert (a.is_meta, a.shape, a.dtype, values["b"] is a) == (True, (3, 1 << 16), torch.bfloat16, True)
    assert (array.shape, array.dtype, values["epoch"]) == ((1000, 1000), np.float64, 3)
    with pytest.raises(CorruptError, match="its tree is longer than the archive"):
        outline(whole[: end - 1])


def test_it_tells_which_versions_wrote_it() -> None:
    whole = archive({"a": 1})
    assert outline(whole).writer == {"hvd_elastic": version("hvd-elastic"), "torch": str(torch.__version__)}
    tree = json.dumps({"values": {"dict": [["a", 1]]}, "tensors": []}).encode()
    earlier = whole[:8].numpy().tobytes() + len(tree).to_bytes(8, "little") + tree
    of_an_earlier_version = torch.frombuffer(bytearray(earlier), dtype=torch.uint8)
    assert outline(of_an_earlier_version).writer == {}
    assert restore(of_an_earlier_version) == {"a": 1}


def test_the_scripts_classes_need_not_be_there() -> None:
    whole = archive({"phase": Phase.WARM, "point": Point(1, torch.ones(2)), "by": {Phase.WARM: 1}})
    assert outline(whole).values["phase"] == "Phase.WARM"
    values = restore(whole, stand_ins=True)
    point = values["point"]
    assert type(point) is tuple
    assert (values["phase"], point[0], point[1].tolist(), values["by"]) == ("Phase.WARM", 1, [1, 1], {"Phase.WARM": 1})
    assert type(restore(whole)["point"]) is Point
