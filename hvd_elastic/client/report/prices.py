"""What machines cost an hour: a small dated table ships, and `--prices` takes another.

The file is YAML::

    currency: USD
    machines:
      p4d.24xlarge: {gpus: 8, on_demand: 21.96, spot: 9.5}   # of the whole machine; spot may be left out
      cut-up: {gpus: 8, parts: {nvidia.com/mig-1g.5gb: 56}, on_demand: 21.96}

The name is the node's label `node.kubernetes.io/instance-type`. Other keys, `as_of` and `source` among them, are for
people.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any, Final

from hvd_elastic.mpijob.clouds.accelerators import find_accelerator
from hvd_elastic.mpijob.contract import GPU_RESOURCE
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

SHIPPED: Final = "gpu_prices.yaml"
_HOUR: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePrice:
    """Of one instance type, an hour of the whole machine."""

    gpus: int
    on_demand: float
    spot: float | None = None
    """None: not known."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Of a machine whose GPUs are cut up or shared: how many of such a resource it offers."""

    def offers(self, resource: str) -> int | None:
        """How many of a resource. None: it is of parts, and their number is not known."""
        return self.gpus if find_accelerator(resource).is_whole else self.parts.get(resource)

    def per_gpu_second(self, *, spot: bool, resource: str = GPU_RESOURCE) -> float | None:
        """Of one GPU, or of one part of such a GPU. None: not known."""
        price = self.spot if spot else self.on_demand
        gpus = self.offers(resource)
        return None if price is None or gpus is None else price / gpus / _HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices of one currency."""

    currency: str
    machines: Mapping[str, MachinePrice]
    as_of: str = ""
    """The day of the oldest price; empty: the file does not say."""


def read_prices(path: Path | None = None) -> PriceList:
    """The price list of a file, or the one that ships. Raises InvalidInputError with all problems."""
    from hvd_elastic.mpijob.yaml_input.yaml_composer import UnreadableError, read_value

    try:
        text = path.read_text(encoding="utf-8") if path else files(__package__).joinpath(SHIPPED).read_text("utf-8")
        document = read_value(text)
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        raise InvalidInputError([Problem(path="--prices", value=str(path), what=str(error))]) from error
    problems = list(_problems(document))
    if problems:
        raise InvalidInputError(problems)
    return PriceList(
        currency=str(document["currency"]),
        as_of=str(document.get("as_of", "")),
        machines={str(name): _price(entry) for name, entry in document["machines"].items()},
    )


def _price(entry: Mapping[str, Any]) -> MachinePrice:
    spot = entry.get("spot")
    return MachinePrice(
        gpus=entry["gpus"],
        on_demand=float(entry["on_demand"]),
        spot=None if spot is None else float(spot),
        parts=entry.get("parts", {}),
    )


def _problems(document: object) -> Iterator[Problem]:
    if not isinstance(document, dict):
        yield Problem(path="--prices", value=..., what="is not a mapping with the keys currency and machines")
        return
    if not isinstance(document.get("currency"), str):
        yield Problem(path="currency", value=document.get("currency"), what="is not a currency", way_out="such as USD")
    if not isinstance(document.get("as_of", ""), str | int):
        yield Problem(path="as_of", value=..., what="is not a day", way_out="such as 2026-07-01")
    machines = document.get("machines")
    if not isinstance(machines, dict):
        yield Problem(path="machines", value=..., what="is not a mapping from instance types to prices")
        return
    for name, entry in machines.items():
        yield from _problems_of_machine(f"machines.{name}", entry)


def _problems_of_machine(path: str, entry: object) -> Iterator[Problem]:
    if not isinstance(entry, dict):
        yield Problem(path=path, value=entry, what="is not a mapping with gpus and on_demand")
        return
    parts = entry.get("parts", {})
    if not isinstance(parts, dict):
        yield Problem(path=f"{path}.parts", value=..., what="is not a mapping from resources to their number")
        parts = {}
    counts = {"gpus": entry.get("gpus"), **{f"parts.{resource}": amount for resource, amount in parts.items()}}
    for key, amount in counts.items():
        if not isinstance(amount, int) or isinstance(amount, bool) or amount < 1:
            yield Problem(path=f"{path}.{key}", value=amount, what="is not a whole number above 0")
    for key in ("on_demand", "spot"):
        price = entry.get(key)
        is_price = isinstance(price, int | float) and not isinstance(price, bool) and 0 <= price < inf
        if not is_price and not (key == "spot" and price is None):
            yield Problem(path=f"{path}.{key}", value=price, what="is not a price an hour")
