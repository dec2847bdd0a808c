"""The ledger stays short, and says the same."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.ledger.account import fold
from hvd_elastic.discovery.ledger.bounded_ledger import BoundedLedger
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    Totals,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    WorldChanged,
    to_line,
)
from hvd_elastic.discovery.ledger.launcher_view import last_launcher


def history(count: int) -> list[Entry]:
    """Workers come and go, and launchers."""
    entries: list[Entry] = [LauncherStarted(unix=0.0, pod="launcher-0", uid="l0")]
    for number in range(count):
        at, pod, uid = 10.0 * number, f"job-worker-{number % 3}", f"uid-{number}"
        entries += [
            WorkerBound(unix=at, pod=pod, uid=uid, node="n", gpus=number % 4),
            WorldChanged(unix=at + 1, workers=(pod,), step=number, pause_seconds=1.0, repeated_steps=number % 2),
            WorkerLeaving(unix=at + 3, pod=pod, uid=uid, why=list(Departure)[number % len(Departure)]),
            WorkerGone(unix=at + 4, pod=pod, uid=uid),
        ]
        if number % 5 == 4:
            before, after = f"l{number // 5}", f"l{number // 5 + 1}"
            entries.append(LauncherEnded(unix=at + 5, pod="launcher", uid=before))
            entries.append(LauncherStarted(unix=at + 6, pod="launcher", uid=after))
    return entries


@given(st.integers(0, 60), st.integers(1, 30), st.integers(200, 5000))
def test_a_shortened_ledger_has_the_same_sums(count: int, batch: int, most: int) -> None:
    entries = history(count)
    ledger = BoundedLedger()
    for first in range(0, len(entries), batch):
        ledger = ledger.append(entries[first : first + batch], max_bytes=most)
        ledger = BoundedLedger.from_text(ledger.text)
    now = 10.0 * count + 100.0
    assert fold(ledger.entries, now) == fold(entries, now)
    assert last_launcher(ledger.entries) == last_launcher(entries)
    later = [JobEnded(unix=now, succeeded=True)]
    assert fold([*ledger.entries, *later], now + 5) == fold([*entries, *later], now + 5)


def test_is_short_however_much_has_happened() -> None:
    ledger = BoundedLedger()
    for entry in history(2000):
        ledger = ledger.append([entry], max_bytes=4096)
        assert len(ledger.text.encode()) <= 4096
    assert isinstance(ledger.entries[0], Totals)
    assert len(ledger.entries) > 5, "the newest stay as they were"


def test_what_is_not_over_is_kept_even_if_it_is_long() -> None:
    workers: list[Entry] = [WorkerBound(unix=1.0, pod=f"w-{i}", uid=f"u-{i}", node="n", gpus=1) for i in range(50)]
    ledger = (
        BoundedLedger()
        .append(workers, max_bytes=1000)
        .append([WorkerGone(unix=5.0, pod="w-7", uid="u-7")], max_bytes=1000)
    )
    assert fold(ledger.entries, 10.0).held_gpus == 49


def test_a_torn_line_and_a_strangers_stay_where_they_are() -> None:
    known = WorkerGone(unix=5.0, pod="w", uid="u")
    ledger = BoundedLedger.from_text('{"kind":"later-invention","unix":1}\n{"kind":"worker-')
    longer = ledger.append([known])
    assert longer.entries == (known,)
    assert longer.text == '{"kind":"later-invention","unix":1}\n{"kind":"worker-\n' + to_line(known)


def test_knows_what_it_has() -> None:
    bound = WorkerBound(unix=1.0, pod="w", uid="u", node="n")
    world = WorldChanged(unix=2.0, workers=("w",))
    ledger = BoundedLedger().append([bound, world])
    later = WorldChanged(unix=3.0, workers=())
    seen_otherwise = WorkerBound(unix=1.5, pod="w", uid="u", node="n")
    assert ledger.without_known([seen_otherwise, world, later]) == [later]


@given(st.integers(1, 30), st.integers(0, 5), st.integers(200, 5000))
def test_a_ledger_is_continued_by_what_is_appended_to_it(count: int, more: int, most: int) -> None:
    entries = history(count)
    begun = BoundedLedger().append(entries)
    assert begun.append(history(count + more)[len(entries) :], max_bytes=max(most, 2000)).continues(begun)
    assert begun.continues(BoundedLedger())


@given(st.integers(1, 30), st.data())
def test_a_ledger_from_which_something_was_taken_continues_nothing(count: int, data: st.DataObject) -> None:
    entries = history(count)
    lost = data.draw(st.integers(0, len(entries) - 1))
    rest = BoundedLedger().append([*entries[:lost], *entries[lost + 1 :]])
    assert not rest.continues(BoundedLedger().append(entries))


def test_rubbish_continues_nothing() -> None:
    begun = BoundedLedger().append(history(3))
    assert not BoundedLedger.from_text("rubbish\n{]\n").continues(begun)
    assert not BoundedLedger().continues(begun)
