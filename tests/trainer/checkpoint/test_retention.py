from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import CheckpointId
from hvd_elastic.trainer.checkpoint.retention import Deletions, choose_deletions

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
