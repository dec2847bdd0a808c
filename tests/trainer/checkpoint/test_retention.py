from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import CheckpointId
from hvd_elastic.trainer.checkpoint.retention import Deletions, choose_deletions, choose_expendable, count_for_room

checkpoint_ids = st.builds(
    lambda epoch, sequence: CheckpointId(epoch=epoch, sequence=sequence), st.integers(1, 5), st.integers(1, 5)
)


def manifest(checkpoint: CheckpointId) -> str:
    return f"manifests/{checkpoint}-step-1.json"


def data(checkpoint: CheckpointId) -> str:
    return f"data/{checkpoint}-ab"


@given(st.sets(checkpoint_ids), st.sets(checkpoint_ids), checkpoint_ids, st.integers(1, 4), st.data())
def test_what_stays_and_what_goes(
    written: set[CheckpointId], uploaded: set[CheckpointId], newest: CheckpointId, keep: int, draw: st.DataObject
) -> None:
    written |= {newest}
    uploaded |= written
    bad = draw.draw(st.sets(st.sampled_from(sorted(written)))) - {newest}
    manifests, objects = {manifest(p) for p in written}, {data(p) for p in uploaded}
    rejected = {manifest(p) for p in bad}
    gone = choose_deletions(manifests, objects, keep=keep, newest=newest, rejected=rejected)
    left = {p for p in written if manifest(p) not in gone.manifests}
    good = sorted(p for p in written - bad if p <= newest)
    assert set(good[-keep:]) <= left, "the newest good ones stay"
    assert not set(good[:-keep]) & left, "older good ones go"
    assert all(data(p) not in gone.data for p in left), "a manifest that stays keeps its data"
    assert all(data(p) in gone.data for p in uploaded if p <= newest and p not in left), "no data stays without one"
    assert all(p in left and data(p) not in gone.data for p in written if p > newest), "a successor's are not touched"


def test_with_too_few_good_ones_even_bad_ones_stay() -> None:
    one, two = CheckpointId(epoch=1, sequence=1), CheckpointId(epoch=1, sequence=2)
    gone = choose_deletions(
        [manifest(one), manifest(two)], [data(one), data(two)], keep=2, newest=two, rejected=[manifest(one)]
    )
    assert gone == Deletions(manifests=(), data=())


def test_keys_of_others_are_left_alone() -> None:
    one, two = CheckpointId(epoch=1, sequence=1), CheckpointId(epoch=1, sequence=2)
    gone = choose_deletions(["manifests/notes.txt", manifest(one), manifest(two)], ["data/readme"], keep=1, newest=two)
    assert gone == Deletions(manifests=(manifest(one),), data=())


@given(st.sets(checkpoint_ids), checkpoint_ids, checkpoint_ids, st.integers(1, 4), st.data())
def test_what_is_protected_stays_and_does_not_count(
    written: set[CheckpointId], newest: CheckpointId, protected: CheckpointId, keep: int, draw: st.DataObject
) -> None:
    manifests = {manifest(p) for p in written | {newest}}
    uploaded = written | {newest} | draw.draw(st.sets(checkpoint_ids))
    gone = choose_deletions(manifests, {data(p) for p in uploaded}, keep=keep, newest=newest, protected=protected)
    later = choose_deletions(
        {key for key in manifests if (p := CheckpointId.from_key(key)) and p > protected},
        {data(p) for p in uploaded if p > protected},
        keep=keep,
        newest=newest,
    )
    assert gone == later, "as if nothing protected were there"


@given(st.sets(checkpoint_ids), checkpoint_ids, checkpoint_ids | st.none(), st.data())
def test_what_goes_for_room_is_never_the_newest_good_one(
    written: set[CheckpointId], before: CheckpointId, protected: CheckpointId | None, draw: st.DataObject
) -> None:
    bad = draw.draw(st.sets(st.sampled_from(sorted(written)))) if written else set()
    gone = choose_expendable(
        {manifest(p) for p in written}, before=before, rejected={manifest(p) for p in bad}, protected=protected
    )
    ours = sorted(p for p in written if p < before and (protected is None or p > protected))
    good = [p for p in ours if p not in bad]
    assert list(gone) == ([manifest(p) for p in ours if p != good[-1]] if good else [])


@given(st.lists(st.integers(0, 9), max_size=5), st.integers(0, 20), st.integers(0, 40))
def test_no_more_go_than_make_room_and_none_if_all_would_not(sizes: list[int], free: int, needed: int) -> None:
    count = count_for_room(sizes, free=free, needed=needed)
    if count is None:
        assert free + sum(sizes) < needed
    else:
        assert free + sum(sizes[:count]) >= needed
        assert not count or free + sum(sizes[: count - 1]) < needed
