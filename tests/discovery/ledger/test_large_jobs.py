"""The ledger of large jobs: its length has a bound for any size, and many resizes are kept as they were."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.ledger import bounded_ledger
from hvd_elastic.discovery.ledger import entries as entries_module
from hvd_elastic.discovery.ledger.account import fold
from hvd_elastic.discovery.ledger.bounded_ledger import MAX_BYTES, MOST_BYTES, BoundedLedger
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    LauncherStarted,
    RanksStalled,
    WantedChanged,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    WorldChanged,
    from_lines,
    to_line,
    to_text,
)

NODE = "ip-10-{}-{}.eu-central-1.compute.internal"


def pod(index: int) -> str:
    return f"llama-finetune-worker-{index}"


def bound(index: int, turn: int, unix: float) -> WorkerBound:
    return WorkerBound(
        unix=unix,
        pod=pod(index),
        uid=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{turn} {index}")),
        node=NODE.format(index // 256, index % 256),
        gpus=8,
        machine="p4d.24xlarge",
        spot=True,
    )


def begun(workers: int) -> list[Entry]:
    """A job that trains with all of its workers."""
    return [
        LauncherStarted(unix=0.0, pod="llama-finetune-launcher", uid="l"),
        WantedChanged(unix=0.0, workers=workers),
        *(bound(index, 0, 1.0 + index / 8) for index in range(workers)),
        WorldChanged(unix=500.0, workers=tuple(map(pod, range(workers))), step=0),
    ]


def lost(worker: WorkerBound, unix: float) -> list[Entry]:
    by = f"inference/web-{int(unix)}"
    return [
        WorkerLeaving(unix=unix, pod=worker.pod, uid=worker.uid, why=Departure.PREEMPTED, by=by),
        WorkerGone(unix=unix + 30, pod=worker.pod, uid=worker.uid),
    ]


def resizes(workers: int, count: int) -> Iterator[list[Entry]]:
    """One worker after the other is preempted, and comes back: two changes of the world each."""
    there = {index: bound(index, 0, 1.0 + index / 8) for index in range(workers)}
    everybody = tuple(map(pod, range(workers)))
    for turn in range(1, count // 2 + 1):
        index, at = (turn * 7) % workers, 600.0 * turn
        left = tuple(name for name in everybody if name != pod(index))
        yield [
            *lost(there[index], at),
            WorldChanged(unix=at + 5, workers=left, step=turn * 100, pause_seconds=0.8),
        ]
        there[index] = bound(index, turn, at + 100)
        yield [there[index], WorldChanged(unix=at + 120, workers=everybody, step=turn * 100 + 50, pause_seconds=0.8)]


def worlds(ledger: BoundedLedger) -> int:
    return sum(isinstance(entry, WorldChanged) for entry in ledger.entries)


@pytest.mark.parametrize("workers", [8, 256, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1024, 2048))])
def test_hundreds_of_resizes_are_kept_in_a_job_of_any_size(workers: int) -> None:
    entries = begun(workers)
    ledger = BoundedLedger().append(entries)
    kept, lengths = [], []
    for batch in resizes(workers, 700):
        entries += batch
        ledger = ledger.append(batch)
        kept.append(worlds(ledger))
        lengths.append(len(ledger.text))
    assert min(kept[200:]) >= 150
    assert max(lengths) <= (MAX_BYTES if workers <= 1024 else MAX_BYTES * 3 // 2)
    assert fold(BoundedLedger.from_text(ledger.text).entries, 2e6) == fold(entries, 2e6)


def test_a_job_that_is_taken_whole_fits_into_a_config_map() -> None:
    workers = 3000
    entries = begun(workers)
    gone = [entry for each in entries if isinstance(each, WorkerBound) for entry in lost(each, 600.0)]
    entries += [*gone, WorldChanged(unix=640.0, workers=(), step=100)]
    entries += [WantedChanged(unix=650.0 + number, workers=workers) for number in range(1000)]
    ledger = BoundedLedger()
    for at in range(0, len(entries), 1000):
        ledger = ledger.append(entries[at : at + 1000])
        assert len(ledger.text) <= MOST_BYTES
    read = fold(BoundedLedger.from_text(ledger.text).entries, 2000.0)
    assert read == fold(entries, 2000.0)
    assert read.lent_gpus == 8 * workers
    later: list[Entry] = [WantedChanged(unix=3000.0, workers=0)]
    later += [RanksStalled(unix=3000.0 + number, words="x" * 4000) for number in range(300)]
    for at in range(0, len(later), 50):
        ledger = ledger.append(later[at : at + 50])
        assert len(ledger.text) <= MOST_BYTES
    assert fold(ledger.entries, 9e5) == fold([*entries, *later], 9e5)
    assert len(ledger.text) <= MAX_BYTES, "all loans are over"


def test_a_job_larger_than_that_keeps_the_bound_and_says_that_it_counts_not_all() -> None:
    entries = begun(12_000)
    ledger = BoundedLedger().append(entries)
    assert len(ledger.text) <= MOST_BYTES
    account = fold(ledger.entries, 3000.0)
    assert account.counts_since is not None
    assert 0 < account.held_gpus < 8 * 12_000
    assert BoundedLedger.from_text(ledger.text).entries == ledger.entries


def test_an_append_looks_at_what_is_new_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the few that shorten the ledger."""
    seen, identified, identity = list[int](), list[Entry](), bounded_ledger._identity

    def count_lines(entries: list[Entry]) -> str:
        seen.append(len(list(entries)))
        return to_text(entries)

    def count_identities(entry: Entry) -> str:
        identified.append(entry)
        return identity(entry)

    monkeypatch.setattr(bounded_ledger, "to_text", count_lines)
    monkeypatch.setattr(bounded_ledger, "_identity", count_identities)
    ledger, appended = BoundedLedger(), 0
    for batch in [begun(64), *resizes(64, 4000)]:
        ledger = ledger.append(ledger.without_known(batch))
        appended += len(batch)
    assert sum(seen) < 6 * appended
    assert len(identified) < 6 * appended


@given(st.sets(st.integers(0, 5000), min_size=17, max_size=300), st.integers(0, 299))
def test_a_large_world_is_read_back(indexes: set[int], first: int) -> None:
    names = [pod(index) for index in sorted(indexes)]
    rank0 = names[first % len(names)]
    world = WorldChanged(unix=1.0, workers=(rank0, *(name for name in names if name != rank0)), step=3)
    line = to_line(world)
    assert list(from_lines([line])) == [world]
    assert len(line) < len(json.dumps(world.workers))


@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"world-changed","unix":1,"rank0":"a-1","pods":{"a-":"0-999999999999"}}',
        '{"kind":"world-changed","unix":1,"rank0":"a-1","pods":{"a-":"1-b"}}',
        '{"kind":"world-changed","unix":1,"rank0":"a-1","pods":{"a-":"0-%s"}}' % ("9" * 30),
        '{"kind":"world-changed","unix":1,"rank0":"a-1","pods":["a"]}',
        '{"kind":"world-changed","unix":1,"pods":{"a-":"0-3"}}',
        '{"kind":"world-changed","unix":1,"rank0":"a-1","pods":{"%s":"0-3"}}' % ("a" * 300),
        '{"kind":"many","each":"worker-gone","same":{},"columns":{"unix":[1,2],"uid":["u",["1"]]}}',
        '{"kind":"many","each":"worker-gone","same":{"pod":"p"},"columns":{"unix":[1,"x"],"uid":["u",["1","2"]]}}',
        '{"kind":"many","each":"many","same":{},"columns":{"unix":[1]}}',
        '{"kind":"many"}',
    ],
)
def test_a_strangers_packed_line_costs_only_itself(line: str) -> None:
    good = to_line(WantedChanged(unix=1.0, workers=2))
    assert list(from_lines([line, good])) == [WantedChanged(unix=1.0, workers=2)]


def test_a_ledger_full_of_strangers_worlds_is_read_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries_module, "_MAX_NAMES", 10_000)
    world = '{"kind":"world-changed","unix":1,"rank0":"a-1","pods":{"a-":"0-999"}}'
    assert len(list(from_lines([world] * 1000))) == 11


def test_a_ledger_of_before_is_read_and_becomes_short() -> None:
    """In which each world had the names of all its workers."""
    entries = begun(1024)
    for batch in resizes(1024, 20):
        entries += batch
    lines = [json.dumps({"kind": each.kind, **asdict(each)}, separators=(",", ":")) for each in entries]
    ledger = BoundedLedger.from_text("\n".join(lines))
    assert ledger.entries == tuple(entries)
    assert len(ledger.text) > MOST_BYTES
    longer = ledger.append([WantedChanged(unix=9e5, workers=1024)])
    assert len(longer.text) <= MAX_BYTES
    assert fold(longer.entries, 9e5) == fold([*entries, WantedChanged(unix=9e5, workers=1024)], 9e5)


def test_small_jobs_are_written_out() -> None:
    """As programs of before read them."""
    entries = begun(16)
    assert to_text(entries) == "".join(map(to_line, entries))
    assert '"workers":["llama-finetune-worker-0",' in to_text(entries)
