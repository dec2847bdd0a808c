"""What is whose, and who sends what to whom."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty

from hvd_elastic.trainer.sharding.commit_choice import Kept, choose_commit, words_of_loss
from hvd_elastic.trainer.sharding.shares import (
    WHOLE,
    Length,
    ParameterSpec,
    Rows,
    Share,
    Transfer,
    buckets_of,
    elements_of,
    lost_elements,
    plan_transfers,
    rounds_of,
)

evenly = st.integers(0, 60)
rows = st.builds(Rows, count=st.integers(0, 12), width=st.integers(1, 5))
lengths = evenly | rows
sizes = st.integers(1, 9)


def world(size: int) -> list[Share]:
    return [Share(rank=rank, size=size) for rank in range(size)]


@given(lengths, sizes)
def test_shares_follow_each_other(length: Length, size: int) -> None:
    ranges = [share.range(length) for share in world(size)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == elements_of(length)
    assert all(one[1] == two[0] for one, two in itertools.pairwise(ranges))


@given(rows, sizes)
def test_rows_are_cut_as_fully_shard_cuts_them(length: Rows, size: int) -> None:
    whole = torch.arange(elements_of(length)).view(length.count, length.width)
    for share, chunk in zip(world(size), _chunk_with_empty(whole, size, dim=0), strict=True):
        assert whole.flatten()[slice(*share.range(length))].tolist() == chunk.flatten().tolist()


@given(evenly, sizes)
def test_shares_of_elements_differ_by_one_at_most(length: int, size: int) -> None:
    ranges = [share.range(length) for share in world(size)]
    parts = [stop - start for start, stop in ranges]
    assert max(parts) - min(parts) <= 1
    assert parts == sorted(parts, reverse=True), "as reducescatter divides: the longer parts first"


@given(st.integers(2, 40), st.data())
def test_no_half_of_the_ring_has_a_share_and_its_copy(size: int, data: st.DataObject) -> None:
    lost = data.draw(st.integers(1, size // 2))
    first = data.draw(st.integers(0, size - 1))
    gone = {(first + each) % size for each in range(lost)}
    held = [() if rank in gone else (share, share.copied()) for rank, share in enumerate(world(size))]
    assert lost_elements(1000, held) == 0


@given(lengths, sizes, sizes, st.data())
def test_everybody_gets_each_element_of_what_it_wants_once(
    length: Length, before: int, after: int, data: st.DataObject
) -> None:
    survivors = data.draw(st.sets(st.integers(0, before - 1), min_size=1))
    held = [(share, share.copied()) if rank in survivors else () for rank, share in enumerate(world(before))]
    held = [*held, *[()] * max(0, after - before)]
    if lost_elements(length, held):
        return
    wanted = [*world(after), *[None] * max(0, before - after)]
    got: dict[int, list[int]] = {rank: [] for rank in range(len(held))}
    for each in plan_transfers(length, held, wanted):
        assert each.share in held[each.source]
        first, last = each.share.range(length)
        assert first <= each.start < each.stop <= last
        got[each.target] += range(each.start, each.stop)
        own = any(s.range(length)[0] <= each.start and each.stop <= s.range(length)[1] for s in held[each.target])
        assert (each.source == each.target) == own, "nothing is sent to who has it"
    assert got == {rank: list(range(*share.range(length))) if share else [] for rank, share in enumerate(wanted)}


def test_what_one_rank_has_is_spread_and_what_all_have_is_gathered() -> None:
    spread = plan_transfers(10, [[WHOLE], [], []], world(3))
    assert [(each.source, each.target, each.start, each.stop) for each in spread] == [
        (0, 0, 0, 4),
        (0, 1, 4, 7),
        (0, 2, 7, 10),
    ]
    gathered = plan_transfers(10, [[share] for share in world(3)], [WHOLE, None, None])
    assert [(each.source, each.start, each.stop) for each in gathered] == [(0, 0, 4), (1, 4, 7), (2, 7, 10)]


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 20))
def test_buckets_have_each_element_once_and_in_order(elements: list[int], most: int) -> None:
    specs = [ParameterSpec(group=number % 2, kind="float32", elements=count) for number, count in enumerate(elements)]
    buckets = buckets_of(specs, most=most)
    assert all(0 < bucket.length <= most for bucket in buckets)
    for group in (0, 1):
        found = [
            (piece.parameter, at)
            for bucket in buckets
            for piece in bucket.pieces
            for at in range(piece.start, piece.stop)
            if bucket.group == group
        ]
        assert found == [(n, at) for n, count in enumerate(elements) if n % 2 == group for at in range(count)]


def test_a_range_of_a_bucket_is_found_in_its_parameters() -> None:
    specs = [ParameterSpec(group=0, kind="float32", elements=count) for count in (3, 9, 4)]
    first, second = buckets_of(specs, most=8)
    assert [(at, each.parameter, each.start, each.stop) for at, each in first.within(2, 6)] == [
        (0, 0, 2, 3),
        (1, 1, 0, 3),
    ]
    assert [(at, each.parameter, each.start, each.stop) for at, each in second.within(0, 9)] == [
        (0, 1, 5, 9),
        (4, 2, 0, 4),
    ]


@given(lengths, sizes, sizes, st.integers(1, 20))
def test_rounds_send_what_the_plan_sends_and_little_at_a_time(length: int, before: int, after: int, most: int) -> None:
    held: list[tuple[Share, ...]] = [(share,) for share in world(before)]
    held += [()] * max(0, after - before)
    plan = plan_transfers(length, held, [*world(after), *[None] * max(0, before - after)])
    rounds = rounds_of(plan, most=most)
    for transfer in plan:
        parts = [one for each in rounds for one in each if each_is_of(one, transfer)]
        elements = [element for part in parts for element in range(part.start, part.stop)]
        is_sent = transfer.source != transfer.target
        assert elements == (list(range(transfer.start, transfer.stop)) if is_sent else [])
    assert all(one.stop - one.start <= most for each in rounds for one in each)


def each_is_of(part: Transfer, whole: Transfer) -> bool:
    is_within = whole.start <= part.start and part.stop <= whole.stop
    return (part.source, part.target, part.share) == (whole.source, whole.target, whole.share) and is_within


def kept(share: Share | None, *steps: int, copies: tuple[int, ...] | None = None) -> Kept:
    if share is None:
        return Kept(shares={})
    copied = steps if copies is None else copies
    shares = {step: (share, *([share.copied()] if step in copied else [])) for step in steps}
    return Kept(commits=steps, shares=shares)


def test_the_newest_whole_commit_is_chosen() -> None:
    zero, one, two = world(3)
    assert choose_commit([kept(zero, 7, 6), kept(one, 7, 6), kept(two, 7, 6)], [10]) == 7
    assert choose_commit([kept(zero, 7, 6), kept(None), kept(two, 7, 6)], [10]) == 7, "rank 2 has the copy of rank 1"
    died_before_its_copy_was_made = [kept(zero, 7, 6, copies=(6,)), kept(None), kept(two, 7, 6, copies=(6,))]
    assert choose_commit(died_before_its_copy_was_made, [10]) == 6
    died_before_all_had_committed = [kept(zero, 7, 6, copies=(6,)), kept(None), kept(two, 6, 5)]
    assert choose_commit(died_before_all_had_committed, [10]) == 6
    assert choose_commit([kept(None), kept(None)], [10]) is None


def test_a_share_that_is_lost_with_its_copy_is_named() -> None:
    zero, one, two, three = world(4)
    lost = [kept(zero, 7, 6), kept(None), kept(two, 7, 6), kept(None)]
    assert choose_commit(lost, [10]) is None
    assert words_of_loss(lost) == "the shares of ranks 1 and 3 of 4, of step 7"
    assert choose_commit([kept(zero, 7), kept(one, 7), kept(None), kept(None)], [10]) == 7
    assert choose_commit([kept(zero, 7), kept(three, 7), kept(None), kept(None)], [10]) == 7
