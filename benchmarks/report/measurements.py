"""What benchmarks of hours have measured, a file for each part: a run may measure some parts, and a table shows all.

Each file says of which product its part is, on which machine, and when it was written: no table shows two products.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from benchmarks.report.machine import product_digest, this_machine
from benchmarks.report.record import Record

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Part = TypeVar("Part")

_SUFFIX: Final = ".measured.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements(Generic[Part]):
    """All parts that were measured of one product."""

    product: str
    machine: str
    """When the last part was written."""
    written: float
    """Unix seconds of the last part."""
    parts: Sequence[Part]
    left_out: Sequence[str]
    """What there is of other products, a line each."""

    def record(self, *, name: str, question: str) -> Record:
        """For what is made of them: of their product, machine and day."""
        return Record(name=name, question=question, product=self.product, machine=self.machine, began=self.written)


def keep(folder: Path, name: str, part: "DataclassInstance") -> None:
    """Write a part into a file, in place of what was measured under its name before."""
    folder.mkdir(parents=True, exist_ok=True)
    origin = {"product": product_digest(), "machine": this_machine(), "written": time.time()}
    file = re.sub(r"[^\w.]+", "-", name.lower()) + _SUFFIX
    (folder / file).write_text(json.dumps(origin | asdict(part)))


def measured_of(product: str, folder: Path, read: Callable[..., Part]) -> list[Part]:
    """The parts of a product. `read` makes one of its fields, as JSON has them."""
    return _parts(_files(folder), product, read)


def last_measured(folder: Path, read: Callable[..., Part]) -> Measurements[Part]:
    """What there is of the product that was measured last. Ends the program if there is nothing."""
    files = _files(folder) or sys.exit(f"nothing was measured: {folder} has no records")
    last = max(files, key=lambda file: file.written)
    return Measurements(
        product=last.product,
        machine=last.machine,
        written=last.written,
        parts=_parts(files, last.product, read),
        left_out=[f"left out, of another product: {file.name}" for file in files if file.product != last.product],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    name: str
    product: str
    machine: str
    written: float
    fields: dict[str, Any]
    """Of the part."""

    @classmethod
    def read(cls, path: Path) -> Self:
        fields: dict[str, Any] = json.loads(path.read_text())
        return cls(
            name=path.name.removesuffix(_SUFFIX),
            product=fields.pop("product", ""),
            machine=fields.pop("machine", ""),
            written=fields.pop("written", 0.0),
            fields=fields,
        )


def _parts(files: Sequence[_File], product: str, read: Callable[..., Part]) -> list[Part]:
    return [read(**file.fields) for file in files if file.product == product]


def _files(folder: Path) -> list[_File]:
    return [_File.read(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))]
