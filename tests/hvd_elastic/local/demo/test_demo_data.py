import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hvd_elastic.local.demo.demo_data import IDX_FILES, DataError, digits, idx_folder, read_digits, read_idx


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    raw = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chance = np.random.default_rng(0)
    for name, file in IDX_FILES.items():
        count = 6 if name.startswith("train") else 2
        shape = (count, 5, 5) if name.endswith("images") else (count,)
        write_idx(tmp_path / (f"{file}.gz" if "labels" in name else file), chance.integers(0, 10, shape, np.uint8))
    return tmp_path


def test_idx_files_are_read_plain_and_gzipped(folder: Path) -> None:
    images = idx_folder(folder)

    assert images.train_images.shape == (6, 1, 5, 5)
    assert images.train_images.dtype == np.float32
    assert images.train_images.max() <= 1
    assert images.test_labels.shape == (2,)


def test_every_missing_file_is_named(folder: Path) -> None:
    for file in list(IDX_FILES.values())[:2]:
        for path in folder.glob(f"{file}*"):
            path.unlink()

    with pytest.raises(DataError) as error:
        idx_folder(folder)

    assert all(file in str(error.value) for file in list(IDX_FILES.values())[:2])


@pytest.mark.parametrize("raw", [b"", b"\0\0\x08", b"\0\0\x08\x01\0\0\0\x09abc", b"\x89PNG\r\n\x1a\n0000"])
def test_a_torn_file_is_an_error_that_names_it(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x-idx1-ubyte"
    path.write_bytes(raw)

    with pytest.raises(DataError, match="x-idx1-ubyte"):
        read_idx(path)


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits  # not above: that takes seconds in each process of tests

    images, labels = read_digits()
    expected = load_digits()

    assert (images == expected.images / 16).all()
    assert (labels == expected.target).all()


def test_digits_are_whole_and_split_once() -> None:
    images = digits()

    assert len(images.train_labels) + len(images.test_labels) == 1797
    assert images.train_images.shape[1:] == (1, 8, 8)
    assert set(images.test_labels.tolist()) == set(range(10))
