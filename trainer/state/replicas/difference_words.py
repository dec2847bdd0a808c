"""What a person is told of workers that differ: in what, since when, the likely reason, and the way out."""

from collections.abc import Mapping, Sequence
from typing import Final

from hvd_elastic.trainer.collectives.distributed_optimizer import HOW_TO_AVERAGE, is_averaged
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer
from hvd_elastic.trainer.state.replicas.difference import Difference
from hvd_elastic.trainer.state.replicas.replicated import name_of
from hvd_elastic.trainer.state.replicas.verdict import NEVER, Comparison
from hvd_elastic.trainer.state.state_objects import StateObjects

ON_PURPOSE: Final = (
    "Where workers differ by design, name those objects in State(rank_local=[...]); State(replicas='warn') only warns."
)

_MOST_RANKS: Final = 8

Rates = Mapping[str, Sequence[float]]
"""By optimizer, the learning rate of each group."""


def difference_words(
    comparison: Comparison, difference: Difference, rates: Sequence[Rates], objects: StateObjects, step: int
) -> str:
    """Return in what workers differ, and since when; without a full stop. `rates`: by rank."""
    reference = comparison.reference
    if comparison.rates_differ:
        other = next(rank for rank, each in enumerate(rates) if each != rates[reference])
        name = next(name for name, each in rates[reference].items() if rates[other].get(name) != each)
        has, own = rates[other].get(name), rates[reference][name]
        what = f"the learning rate of {name} is {_rates(has)} on rank {other}, and {_rates(own)} on rank {reference}"
    elif difference.first is None:
        named = name_of(difference.differing[0], objects) if difference.differing else "a parameter"
        more = f" and {len(difference.differing) - 1} more" if len(difference.differing) > 1 else ""
        what = f"{named}{more} of {_ranks(comparison.differing)} differs from that of rank {reference} by rounding"
    else:
        named, who = name_of(difference.first, objects), _ranks(comparison.differing)
        what = (
            f"{named} is not on all ranks in the same shape"
            if difference.most is None
            else f"{named} of {who} is up to {difference.most:.3g} from that of rank {reference}"
        )
    return f"workers differ at step {step}, {_since(comparison)}: {what}"


def likely_reason(comparison: Comparison, difference: Difference, objects: StateObjects) -> str:
    """Return what most likely makes workers differ, as a sentence or two with the way out."""
    if comparison.rates_differ:
        return (
            "Likely a scheduler that the State lacks, or one that each worker steps by a loss of its own: give it to "
            "State(scheduler=...), and step it with a value that all have, such as elastic.agree(loss)."
        )
    plain = [name for name, each in objects.optimizers().items() if not _reduces(each)]
    if plain:
        return (
            f"Likely because state.{plain[0]} is a plain optimizer, so each worker steps by the gradients of its own "
            f"samples: {HOW_TO_AVERAGE} before you create the State."
        )
    if difference.is_of_shape:
        return "Likely because only some workers have added or released parameters: do it on all, at the same step."
    return (
        "Likely because a part of the step depends on the rank: weights that are made from a generator of its own, "
        "gradients that are changed after they were averaged, or a step that only some ranks take."
    )


def _reduces(optimizer: object) -> bool:
    return is_averaged(optimizer) or isinstance(optimizer, ShardedOptimizer)


def _since(comparison: Comparison) -> str:
    if comparison.went_back_from != NEVER:
        return "again after going back"
    if comparison.alike_at != NEVER:
        return f"and were alike at step {comparison.alike_at}"
    if any(report.alike_at != NEVER for report in comparison.reports):
        return "since one of them has joined"
    return "and have since the beginning"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"


def _rates(rates: Sequence[float] | None) -> str:
    return ", ".join(f"{rate:.6g}" for rate in rates) if rates else "unknown"
