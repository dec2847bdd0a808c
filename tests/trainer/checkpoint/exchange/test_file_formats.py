"""Each format gives back what it was given, and what others write with their own libraries is read."""

import collections
import dataclasses
import datetime as dt
import enum
import json
import os
import pathlib
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter, SerializationFormat, _StorageInfo
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from hvd_elastic.trainer.checkpoint.errors import CorruptError, ExchangeError
from hvd_elastic.trainer.checkpoint.exchange.file_formats import (
    FileFormat,
    format_of_name,
    is_exchanged,
    read_file,
    write_file,
)
from hvd_elastic.trainer.checkpoint.exchange.plain_content import Content, Plain
from tests.properties import examples
from tests.trainer.checkpoint.snapshots import same

FORMATS = list(FileFormat)

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.int8,
    torch.uint8, torch.uint16, torch.bool, torch.complex64,
]  # fmt: skip


def made(dtype: torch.dtype, shape: list[int], seed: int, look: str) -> torch.Tensor:
    tensor = torch.randn([*shape, 2], generator=torch.Generator().manual_seed(seed)).mul(3).to(dtype)
    whole: torch.Tensor = tensor[..., 0] if look == "strided" else tensor[..., 0].contiguous()
    return whole.transpose(0, -1) if look == "transposed" and shape else whole


tensors = st.builds(
    made,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(0, 1 << 20),
    st.sampled_from(["plain", "strided", "transposed"]),
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 80), 1 << 80)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
names = st.sampled_from(["weight", "a.b", "a", "b", "0", "", "hvd_elastic.tree", "__metadata__"])
keys = names | st.integers(-1, 3)
values = st.recursive(
    scalars | tensors,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.tuples(inner, inner)
        | inner.map(lambda one: {"tied": one, "again": [one]})
    ),
    max_leaves=8,
)


def there_and_back(content: Content, file_format: FileFormat) -> Content:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write_file(path, content, file_format, facts={"step": "3"}, force=False)
        assert list(Path(folder).iterdir()) == [path], "nothing else is left"
        return read_file(path)


@pytest.mark.distribution
@pytest.mark.parametrize("file_format", FORMATS)
@given(st.dictionaries(names, values, max_size=4))
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
def test_any_content_comes_back(file_format: FileFormat, content: dict[str, Any]) -> None:
    plain = Plain().content(content)
    assert same(there_and_back(plain, file_format), plain)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.output = nn.Linear(3, 5, bias=False)
        self.output.weight = self.embedding.weight


@pytest.mark.distribution
@pytest.mark.parametrize("file_format", FORMATS)
def test_tied_weights_are_tied_again(file_format: FileFormat) -> None:
    content = there_and_back(Plain().content(Tied().state_dict()), file_format)
    assert content["output.weight"] is content["embedding.weight"] or (
        content["output.weight"].data_ptr() == content["embedding.weight"].data_ptr()
    )


def write(path: Path, content: Content, file_format: FileFormat, *, force: bool = False) -> None:
    write_file(path, content, file_format, facts={"step": "3"}, force=force)


def test_others_read_safetensors_with_their_own_library(tmp_path: Path) -> None:
    torch.manual_seed(1)
    path, model = tmp_path / "model.safetensors", Tied()
    write(path, Plain().content(model.state_dict()), FileFormat.SAFETENSORS)
    torch.manual_seed(2)
    other = Tied()
    assert safetensors.torch.load_model(other, path, strict=True) == (set(), [])
    assert same(dict(other.state_dict()), dict(model.state_dict()))
    with safetensors.safe_open(path, framework="pt") as file:
        facts = file.metadata()
    assert (facts["format"], facts["step"], facts["output.weight"]) == ("pt", "3", "embedding.weight")
    names = set(safetensors.torch.load_file(path))
    assert names == {"embedding.weight", *(name for name in model.state_dict() if name.startswith("norm"))}


def test_others_read_what_torch_saves_without_running_code(tmp_path: Path) -> None:
    model = Tied()
    write(tmp_path / "model.pt", Plain().content({"model": model.state_dict(), "epoch": 3}), FileFormat.TORCH)
    content = torch.load(tmp_path / "model.pt", weights_only=True)
    assert content["epoch"] == 3
    assert content["model"]._metadata == model.state_dict()._metadata  # type: ignore[attr-defined]
    Tied().load_state_dict(content["model"])


def test_others_read_the_folder_with_torch_distributed_checkpoint(tmp_path: Path) -> None:
    model, other = Tied(), Tied()
    write(tmp_path / "folder", Plain().content({"model": model.state_dict(), "epoch": 3}), FileFormat.DCP)
    target = {"model": other.state_dict(), "epoch": 0}
    dcp_load(target, checkpoint_id=tmp_path / "folder")
    assert target["epoch"] == 3
    assert same(dict(other.state_dict()), dict(model.state_dict()))


@pytest.mark.distribution
def test_what_others_wrote_is_read(tmp_path: Path) -> None:
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.embedding.weight.grad = torch.ones(5, 3)
    optimizer.step()
    expected = dict(model.state_dict())

    safetensors.torch.save_model(model, str(tmp_path / "theirs.safetensors"))
    assert same(dict(sorted(read_file(tmp_path / "theirs.safetensors").items())), dict(sorted(expected.items())))

    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "theirs.pt")
    content = read_file(tmp_path / "theirs.pt")
    assert same(dict(content["model"]), expected)
    assert same(content["optimizer"], optimizer.state_dict())

    torch.save(model.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert same(dict(read_file(tmp_path / "old.pt")), expected)

    dcp_save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=tmp_path / "theirs")
    content = read_file(tmp_path / "theirs")
    assert same(dict(sorted(content["model"].items())), dict(sorted(expected.items())))
    group = optimizer.state_dict()["param_groups"][0]
    assert content["optimizer"]["param_groups"][0].items() >= group.items()
    assert torch.equal(content["optimizer"]["state"]["0"]["momentum_buffer"], torch.ones(5, 3))


class Phase(enum.Enum):
    WARM = 1


Point = collections.namedtuple("Point", ["x", "y"])


def test_what_a_state_may_hold_becomes_plain() -> None:
    frozen, parameter = torch.ones(2, 2)[:, 0], nn.Parameter(torch.ones(2))
    content = Plain().content(
        {
            "phase": Phase.WARM,
            "point": Point(1, parameter),
            "deque": collections.deque([1, 2], 3),
            "default": collections.defaultdict(int, a=1),
            "counter": collections.Counter({3: 2}),
            "array": np.arange(3, dtype=np.int16),
            "texts": np.array(["a", "b"]),
            "days": np.array(["2026-01-02"], dtype="datetime64[D]"),
            "number": np.float32(1.5),
            "path": pathlib.Path("/data"),
            "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
            "took": dt.timedelta(minutes=2),
            "range": range(2),
            "complex": 1 + 2j,
            "frozen": frozen,
            "set": frozenset({1}),
            "by": {Phase.WARM: 1, (1, "a"): 2},
        }
    )
    assert same(
        content,
        {
            "phase": "Phase.WARM",
            "point": (1, torch.ones(2)),
            "deque": [1, 2],
            "default": {"a": 1},
            "counter": collections.Counter({3: 2}),
            "array": torch.arange(3, dtype=torch.int16),
            "texts": ["a", "b"],
            "days": ["2026-01-02"],
            "number": 1.5,
            "path": "/data",
            "at": "2026-01-02T00:00:00+00:00",
            "took": 120.0,
            "range": [0, 1],
            "complex": [1.0, 2.0],
            "frozen": torch.ones(2),
            "set": {1},
            "by": {"Phase.WARM": 1, (1, "a"): 2},
        },
    )
    assert content["frozen"].untyped_storage().nbytes() == 8, "no memory around it is written"


def test_what_has_no_plain_form_is_told_and_left_out() -> None:
    plain = Plain()
    assert plain.content({"a": {"b": [1, object()]}, "c": 1}) == {"a": {"b": [1]}, "c": 1}
    assert plain.unfit == ["a.b.1: object"]


def test_a_dtype_that_safetensors_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match=r"(?s)export to torch or dcp.*a\.b: torch\.complex128"):
        write(tmp_path / "a.safetensors", {"a": {"b": torch.ones(1, dtype=torch.complex128)}}, FileFormat.SAFETENSORS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.distribution
@pytest.mark.parametrize("file_format", FORMATS)
def test_nothing_is_replaced_unless_asked_for(file_format: FileFormat, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, {"a": torch.ones(1)}, file_format)
    with pytest.raises(ExchangeError, match="exists: choose another name, or replace it with --force"):
        write(path, {"a": torch.zeros(1)}, file_format)
    assert read_file(path)["a"].item() == 1
    write(path, {"a": torch.zeros(1)}, file_format, force=True)
    assert read_file(path)["a"].item() == 0
    other = FileFormat.TORCH if file_format is FileFormat.DCP else FileFormat.DCP
    write(path, {"a": torch.ones(1)}, other, force=True)
    assert read_file(path)["a"].item() == 1
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    with pytest.raises(ExchangeError, match="is a URL: write a file of this machine"):
        write(Path("s3://bucket/file"), {}, file_format)
    with pytest.raises(ExchangeError, match="none is not a folder: create it"):
        write(tmp_path / "none" / "file", {}, file_format)


@pytest.mark.distribution
@pytest.mark.parametrize("file_format", FORMATS)
def test_damage_is_told(file_format: FileFormat, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, {"a": torch.ones(1000)}, file_format)
    damaged = path if path.is_file() else next(each for each in path.iterdir() if each.suffix == ".distcp")
    damaged.write_bytes(damaged.read_bytes()[:-2000])
    with pytest.raises(CorruptError, match=str(path)):
        read_file(path)


def test_what_is_no_such_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no checkpoint at all")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CorruptError, match=r"neither of safetensors nor of torch\.save"):
        read_file(tmp_path / "text")
    with pytest.raises(ExchangeError, match=r"a folder without \.metadata"):
        read_file(tmp_path / "folder")
    with pytest.raises(ExchangeError, match="does not exist"):
        read_file(tmp_path / "none")
    assert [is_exchanged(tmp_path / name) for name in ("text", "folder", "none")] == [True, False, False]
    torch.save([1], tmp_path / "list.pt")
    with pytest.raises(ExchangeError, match="holds a list, not a dictionary"):
        read_file(tmp_path / "list.pt")


@pytest.mark.distribution
@pytest.mark.parametrize("home", ["pathlib", "pathlib._local"])
def test_a_folder_is_read_whatever_python_wrote_it(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 alone says that a path's class is of `pathlib._local`."""
    monkeypatch.setitem(sys.modules, "pathlib._local", pathlib)
    monkeypatch.setattr(type(tmp_path), "__module__", home)
    write(tmp_path / "folder", {"a": torch.arange(3)}, FileFormat.DCP)
    monkeypatch.undo()
    assert bytes([len(home)]) + home.encode() in (tmp_path / "folder" / ".metadata").read_bytes()
    assert torch.equal(read_file(tmp_path / "folder")["a"], torch.arange(3))


class ByGetattr(pickle.Pickler):
    """Pickles members of enumerations as Python 3.11.0 to 3.11.3 do. Debian 12 has 3.11.2."""

    def reducer_override(self, value: object) -> Any:
        return (getattr, (type(value), value.name)) if isinstance(value, enum.Enum) else NotImplemented


class Attribute:
    def __init__(self, of: object, name: str) -> None:
        self.of, self.name = of, name

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, str]]:
        return getattr, (self.of, self.name)


@pytest.mark.distribution
def test_an_index_names_members_of_enumerations_and_no_other_attribute(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder, {"a": torch.arange(3)}, FileFormat.DCP)
    with (folder / ".metadata").open("rb") as written:
        index = pickle.load(written)
    with (folder / ".metadata").open("wb") as rewritten:
        ByGetattr(rewritten).dump(index)
    assert b"getattr" in (folder / ".metadata").read_bytes()
    assert torch.equal(read_file(folder)["a"], torch.arange(3))
    for attribute in (Attribute(type(index), "__subclasses__"), Attribute(_MEM_FORMAT_ENCODING, "__init__")):
        (folder / ".metadata").write_bytes(pickle.dumps(attribute))
        with pytest.raises(ExchangeError, match=r"its index names builtins\.getattr"):
            read_file(folder)


@pytest.mark.parametrize("named", ["../secret/{}", "{secret}/{}", "sub/../../secret/{}"])
def test_an_index_names_files_of_its_own_folder_alone(named: str, tmp_path: Path) -> None:
    """This process may read what the author of the folder may not."""
    secret = tmp_path / "secret"
    write(secret, {"a": torch.arange(3)}, FileFormat.DCP)
    index = pickle.loads((secret / ".metadata").read_bytes())
    for key, place in index.storage_data.items():
        path = named.format(place.relative_path, secret=secret)
        index.storage_data[key] = dataclasses.replace(place, relative_path=path)
    (tmp_path / "evil" / "sub").mkdir(parents=True)
    (tmp_path / "evil" / ".metadata").write_bytes(pickle.dumps(index))
    with pytest.raises(ExchangeError, match="which is not in this folder"):
        read_file(tmp_path / "evil")


class MakesWriter:
    def __reduce__(self) -> tuple[type, tuple[str]]:
        return FileSystemWriter, ("written",)


@pytest.mark.parametrize(
    "value", [MakesWriter(), FileSystem(), SerializationFormat.TORCH_SAVE], ids=["call", "object", "member"]
)
def test_an_index_makes_what_describes_tensors_and_nothing_else_of_torchs_modules(
    value: object, tmp_path: Path
) -> None:
    write(tmp_path / "folder", {"a": torch.arange(3)}, FileFormat.DCP)
    (tmp_path / "folder" / ".metadata").write_bytes(pickle.dumps(value))
    with pytest.raises(ExchangeError, match=r"its index names torch\.distributed\.checkpoint\.filesystem"):
        read_file(tmp_path / "folder")


@pytest.mark.parametrize("places", [None, {"a": 3}, {"a": _StorageInfo(3, 0, 0)}], ids=["none", "number", "path"])  # type: ignore[arg-type]
def test_an_index_of_another_form_is_told(places: object, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder, {"a": torch.arange(3)}, FileFormat.DCP)
    index = pickle.loads((folder / ".metadata").read_bytes())
    index.storage_data = places
    (folder / ".metadata").write_bytes(pickle.dumps(index))
    with pytest.raises(CorruptError, match="is not a whole folder"):
        read_file(folder)


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return os.symlink, ("ran", str(self.path))


def test_no_code_of_a_file_is_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    torch.save({"model": Evil(ran)}, tmp_path / "evil.pt")
    dcp_save({"model": Evil(ran)}, checkpoint_id=tmp_path / "values")
    write(tmp_path / "index", {"a": torch.ones(1)}, FileFormat.DCP)
    (tmp_path / "index" / ".metadata").write_bytes(pickle.dumps(Evil(ran)))
    for name in ("evil.pt", "values", "index"):
        with pytest.raises(ExchangeError, match="No code of a"):
            read_file(tmp_path / name)
    assert not ran.is_symlink()


def test_the_name_tells_the_format() -> None:
    assert format_of_name(Path("a.safetensors")) is FileFormat.SAFETENSORS
    assert format_of_name(Path("a.pt")) is FileFormat.TORCH
    with pytest.raises(ExchangeError, match="add --format, one of safetensors, torch, dcp"):
        format_of_name(Path("a"))


def test_metadata_is_text_that_people_can_read(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", {"a": torch.ones(1), "epoch": 3}, FileFormat.SAFETENSORS)
    with safetensors.safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        tree = json.loads(file.metadata()["hvd_elastic.tree"])
    assert tree == {"names": ["a"], "values": {"dict": [["a", {"tensor": 0}], ["epoch", 3]]}}
