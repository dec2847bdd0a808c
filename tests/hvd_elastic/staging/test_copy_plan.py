"""The plan, for any source and any folder."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.staging.copy_plan import CopyRecord, FileFacts, plan_copy
from hvd_elastic.staging.source_manifest import SourceManifest
from hvd_elastic.stores.object_requests import ListedObject

KEYS = st.sampled_from("abcdef")
FACTS = st.builds(FileFacts, size_bytes=st.integers(0, 2), mtime_ns=st.integers(0, 1))
ETAGS = st.sampled_from(["1", "2"])


@st.composite
def folders(draw: st.DrawFn) -> tuple[SourceManifest, dict[str, CopyRecord], dict[str, FileFacts]]:
    source = [
        ListedObject(key=key, size_bytes=draw(st.integers(0, 2)), version=draw(ETAGS)) for key in draw(st.sets(KEYS))
    ]
    records = {key: CopyRecord(key=key, version=draw(ETAGS), file=draw(FACTS)) for key in draw(st.sets(KEYS))}
    return SourceManifest.of(source), records, draw(st.dictionaries(KEYS, FACTS))


@given(folders())
def test_each_object_has_one_fate(case: tuple[SourceManifest, dict[str, CopyRecord], dict[str, FileFacts]]) -> None:
    source, records, files = case
    plan = plan_copy(source, records, files)
    assert sorted([*plan.done, *plan.compare, *plan.copy]) == list(source.objects)
    for one in plan.done:
        assert records[one.key].version == one.version
        assert files[one.key] == records[one.key].file
        assert files[one.key].size_bytes == one.size_bytes
    for one in plan.compare:
        assert files[one.key].size_bytes == one.size_bytes
    wanted = {one.key for one in source.objects}
    assert set(plan.remove) == (records.keys() & files.keys()) - wanted


@given(folders())
def test_what_was_carried_out_leaves_nothing_to_do(
    case: tuple[SourceManifest, dict[str, CopyRecord], dict[str, FileFacts]],
) -> None:
    source, _, _ = case
    files = {one.key: FileFacts(size_bytes=one.size_bytes, mtime_ns=5) for one in source.objects}
    records = {one.key: CopyRecord(key=one.key, version=one.version, file=files[one.key]) for one in source.objects}
    assert plan_copy(source, records, files).is_empty


@given(st.lists(st.tuples(KEYS, st.integers(0, 9), ETAGS), unique_by=lambda one: one[0]), st.randoms())
def test_the_digest_does_not_depend_on_the_order_of_a_listing(
    listed: list[tuple[str, int, str]], random: object
) -> None:
    objects = [ListedObject(key=key, size_bytes=size, version=version) for key, size, version in listed]
    assert SourceManifest.of(objects).digest == SourceManifest.of(reversed(objects)).digest
