"""Stalls of a file and by hand over measured ones."""

from pathlib import Path

import pytest

from hvd_elastic.decide.simulate.inputs.stall_settings import EVENTS, read_stalls, with_overrides
from hvd_elastic.decide.simulate.workload import Stalls, Way
from hvd_elastic.mpijob.problems import InvalidInputError

MEASURED = dict.fromkeys(Way, Stalls(**dict.fromkeys(EVENTS, 1.0)))


def test_a_file_changes_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "stalls.yaml"
    path.write_text("ours: {grow: 0.5}\nrestart: {restart: 120, node_replaced: .inf}\n")
    found = read_stalls(path, MEASURED)
    assert (found[Way.OURS].grow, found[Way.OURS].shrink) == (0.5, 1.0)
    assert (found[Way.RESTART].restart, found[Way.RESTART].node_replaced) == (120, float("inf"))
    assert found[Way.STOCK] == MEASURED[Way.STOCK]


def test_words_change_ours_or_a_way_that_they_name() -> None:
    found = with_overrides(MEASURED, ["grow=2", "stock.shrink=30.5", "stock.node_replaced=inf"])
    assert (found[Way.OURS].grow, found[Way.STOCK].grow) == (2, 1)
    assert (found[Way.STOCK].shrink, found[Way.STOCK].node_replaced) == (30.5, float("inf"))


def test_bad_words_are_one_error() -> None:
    with pytest.raises(InvalidInputError) as raised:
        with_overrides(MEASURED, ["grow", "flying=2", "theirs.grow=1", "grow=-1"])
    assert len(raised.value.problems) == 4
    assert "events are pod_start, " in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", ["is not a mapping"]),
        ("theirs: {}", ["theirs: is no way: write static, stock, restart, ours, oracle"]),
        (
            "ours: {flying: 1, grow: -1, shrink: x}",
            ["ours.flying: 1: is no event", "ours.grow: -1", "ours.shrink: 'x'"],
        ),
        ("ours: [", ["--stalls"]),
    ],
)
def test_a_bad_file_is_one_error(tmp_path: Path, text: str, said: list[str]) -> None:
    path = tmp_path / "stalls.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInputError) as raised:
        read_stalls(path, MEASURED)
    for words in said:
        assert words in str(raised.value)
