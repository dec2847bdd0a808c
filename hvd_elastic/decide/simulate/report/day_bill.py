"""What the GPUs that jobs held cost, by a price list."""

from collections import defaultdict
from dataclasses import replace

from hvd_elastic.client.report.prices import PriceList
from hvd_elastic.decide.simulate.day import Day
from hvd_elastic.decide.simulate.outcome import DayOutcome
from hvd_elastic.mpijob.contract import GPU_RESOURCE


def priced(outcome: DayOutcome, day: Day, prices: PriceList, resource: str = GPU_RESOURCE) -> DayOutcome:
    """The outcome with the cost of each job: what it held, at the price of a GPU of this day.

    `resource`: that the GPUs of the day are asked for by.
    """
    price = gpu_second_price(day, prices, resource)
    jobs = (replace(job, cost=None if price is None else job.held * price) for job in outcome.jobs)
    return replace(outcome, jobs=tuple(jobs))


def gpu_second_price(day: Day, prices: PriceList, resource: str = GPU_RESOURCE) -> float | None:
    """Of one GPU for a second; where nodes cost different amounts their mean, by how long each GPU was there.

    None: the price of a node is not known.
    """
    seconds: defaultdict[tuple[str, bool], float] = defaultdict(float)
    for node in day.nodes:
        seconds[node.machine, node.spot] += node.gpus * (min(node.until, day.seconds) - node.since)
    cost = 0.0
    for (name, spot), amount in seconds.items():
        machine = prices.machines.get(name)
        price = machine.per_gpu_second(spot=spot, resource=resource) if machine else None
        if price is None:
            return None
        cost += price * amount
    return cost / sum(seconds.values()) if seconds else None


def price_remark(day: Day, prices: PriceList, resource: str = GPU_RESOURCE) -> str:
    """How the cost came about, or why there is none."""
    if gpu_second_price(day, prices, resource) is not None:
        several = len({(node.machine, node.spot) for node in day.nodes}) > 1
        mean = ", at the mean price of the nodes" if several else ""
        return f"cost in {prices.currency}{mean}, prices of {prices.as_of or 'the file'}"
    machines = {node.machine for node in day.nodes}
    if not all(machines):
        return "no cost: --machine names the type of the nodes"
    unknown = sorted(machines - set(prices.machines))
    uncounted = [name for name in sorted(machines - set(unknown)) if prices.machines[name].offers(resource) is None]
    lacks = f"the price of {', '.join(unknown)}" if unknown else "the spot price of the nodes"
    if uncounted and not unknown:
        lacks = f"the number of {resource} of {', '.join(uncounted)} (`parts`)"
    return f"no cost: the price list lacks {lacks}; --prices takes yours"
