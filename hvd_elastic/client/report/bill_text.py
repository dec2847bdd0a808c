"""A bill as a person reads it."""

from collections.abc import Iterable, Iterator, Sequence

from hvd_elastic.client.report.bill import Bill, MachineBill
from hvd_elastic.client.report.prices import PriceList
from hvd_elastic.client.report.words.time_words import date_words, duration_words
from hvd_elastic.discovery.rules.cluster_views import LABEL_MACHINE
from hvd_elastic.system.plain_words import count_words

_HOUR = 3600
_IN_LEDGER = "On which machines they were held stood in the ledger"


def bill_text(bill: Bill, prices: PriceList) -> str:
    """Some lines: what was held, what was lent and lost, what it cost, and what is not known."""
    return "".join(f"{line}\n" for line in _lines(bill, prices))


def _lines(bill: Bill, prices: PriceList) -> Iterator[str]:
    trained = duration_words(bill.training_seconds)
    yield f"{bill.namespace}/{bill.name}: held {_hours(bill.gpu_seconds)}, trained {trained}"
    for machine in bill.machines:
        yield f"  {_machine_words(machine, bill.currency)}"
    if bill.preemptions:
        yield f"  lent to others {_hours(bill.lent_gpu_seconds)} in {count_words(bill.preemptions, 'preemption')}"
    yield f"  lost to stalls {_hours(bill.stalled_gpu_seconds)}, to repeated steps {_hours(bill.repeated_gpu_seconds)}"
    if bill.idle_gpu_seconds > 0:
        yield f"  idle {_hours(bill.idle_gpu_seconds)}: of workers that started or were surplus while others trained"
    if bill.gpu_seconds > bill.unpriced_gpu_seconds:
        as_of = f" (prices of {prices.as_of})" if prices.as_of else ""
        yield (
            f"  cost {bill.cost:.2f} {bill.currency}; on demand {bill.on_demand_cost:.2f}, "
            f"saved {bill.saved:.2f}{as_of}"
        )
    if bill.unpriced_gpu_seconds:
        ways = _IN_LEDGER if bill.told is not None else "; ".join(pricing_ways(bill.machines))
        yield f"  not in the cost: {_hours(bill.unpriced_gpu_seconds)}. {ways}"
    for note in record_notes(bill):
        yield f"  {note}"


def record_notes(bill: Bill) -> Iterator[str]:
    """Where the ledger did not have it all: since when this counts, and who tells it."""
    if bill.counts_since is not None:
        yield f"counted since {date_words(bill.counts_since)}: what was recorded before is lost"
    if bill.told is not None:
        yield f"the ledger is gone or lacks entries: this is what the job's sidecar told at {date_words(bill.told)}"


def pricing_ways(machines: Iterable[MachineBill]) -> Sequence[str]:
    """What would price the machines that have no price, a sentence for each way."""
    return list(dict.fromkeys(_pricing_way(one) for one in machines if one.cost is None))


def _pricing_way(machine: MachineBill) -> str:
    if not machine.machine:
        return f"`read_nodes: true` in the job reads from then on what its machines are, by their label {LABEL_MACHINE}"
    if machine.kind == "unknown":
        return f"No label of a node, {machine.machine}, says whether it is spot"
    if machine.uncounted:
        return f"Give the number of {machine.uncounted} of {machine.machine}, under `parts`, with --prices"
    return f"Give the price of {machine.machine}, {machine.kind}, with --prices"


def _machine_words(machine: MachineBill, currency: str) -> str:
    name = machine.machine or "machines of an unknown type"
    cost = "no price is known" if machine.cost is None else f"{machine.cost:.2f} {currency}"
    kind = "spot or on-demand is not known" if machine.kind == "unknown" else machine.kind
    return f"{name}, {kind}: {_hours(machine.gpu_seconds)}, {cost}"


def _hours(gpu_seconds: float) -> str:
    return f"{gpu_seconds / _HOUR:.2f} GPU-hours"
