"""The demo's data: scikit-learn's digits, or Fashion-MNIST's (or MNIST's) IDX files where a folder is given."""

import gzip
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hvd_elastic.mpijob.contract import HvdElasticError

IDX_FILES: Final = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
"""MNIST's file names; each file may be gzipped. Debian packages Fashion-MNIST as `dataset-fashion-mnist`."""


class DataError(HvdElasticError):
    """The data set is missing, or a file is not valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """A data set in memory. Images are float32 [N, 1, H, W] in 0..1, labels int64 [N]."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]


def digits() -> Images:
    """The digits of `read_digits`; every fifth one is in the test set."""
    images, labels = read_digits()
    images = images[:, None]
    test = np.arange(len(labels)) % 5 == 0
    return Images(
        train_images=images[~test], train_labels=labels[~test], test_images=images[test], test_labels=labels[test]
    )


def read_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """scikit-learn's 1,797 handwritten digits, [N, 8, 8] in 0..1, and their labels, [N].

    The same as `sklearn.datasets.load_digits`, without its imports, which take longer than torch's in every worker.
    Raises DataError if scikit-learn is not installed.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("scikit-learn, which ships the digits, is not installed: pip install scikit-learn")
    file = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return table[:, :-1].reshape(-1, 8, 8) / np.float32(16), table[:, -1].astype(np.int64)


def idx_folder(folder: Path) -> Images:
    """Read the four IDX files in `folder`. Raises DataError with every missing file, or with one that is torn."""
    found = {name: _find(folder, file) for name, file in IDX_FILES.items()}
    if missing := [IDX_FILES[name] for name, path in found.items() if path is None]:
        raise DataError(f"{folder}: missing: {', '.join(missing)} (plain or .gz)")
    arrays = {name: read_idx(path) for name, path in found.items() if path}
    return Images(
        train_images=_pixels(arrays["train_images"]),
        train_labels=arrays["train_labels"].astype(np.int64),
        test_images=_pixels(arrays["test_images"]),
        test_labels=arrays["test_labels"].astype(np.int64),
    )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one IDX file of bytes: magic 0, 0, 8 (unsigned byte), rank; sizes as big-endian 32 bits; data.

    Raises DataError if the file is anything else.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zero, kind, rank = struct.unpack_from(">HBB", raw)
        shape = struct.unpack_from(f">{rank}I", raw, 4)
        data = np.frombuffer(raw, np.uint8, offset=4 + 4 * rank)
        if (zero, kind) != (0, 8):
            raise DataError(f"{path}: not an IDX file of bytes")
        return data.reshape(shape)
    except (struct.error, ValueError, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: not a complete IDX file: {error}") from error


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)


def _pixels(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return (images[:, None] / np.float32(255)).astype(np.float32)
