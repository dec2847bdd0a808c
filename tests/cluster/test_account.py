"""What the scenarios judge by must itself be right: the account of steps, the watch's stream, the cluster's record."""

import io
import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from testbed.cluster.timeline import objects
from testbed.cluster.training import Account
from testbed.kube import waiting
from testbed.kube.errors import DeadlineError
from testbed.kube.ledger import Ledger
from testbed.kube.network import Subnets


def _account(*steps: tuple[float, int, int]) -> Account:
    keys = ("time", "step", "size")
    return Account(events=tuple({"event": "step", "rank": 0, **dict(zip(keys, each, strict=True))} for each in steps))


def test_a_clean_resize_loses_nothing() -> None:
    account = _account((1.0, 1, 4), (1.1, 2, 4), (1.5, 3, 2), (1.6, 4, 2))
    assert (account.skipped(), account.repeated(), account.sizes) == ([], [], [4, 2])
    assert account.stall(4, 2) == pytest.approx(0.4)
    assert account.stall(2, 4) is None


def test_a_lost_step_is_seen_as_repeated_and_a_gap_as_skipped() -> None:
    assert _account((1, 1, 2), (2, 2, 2), (3, 2, 1), (4, 3, 1)).repeated() == [2]
    assert _account((1, 1, 2), (2, 3, 2)).skipped() == [2]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    whole = json.dumps({"time": 1, "event": "step", "rank": 0, "size": 1, "step": 1})
    (tmp_path / "a.jsonl").write_text(f'{whole}\n{{"time": 2, "ev')
    assert len(Account.read(tmp_path).events) == 1


@given(some.lists(some.dictionaries(some.text(max_size=5), some.integers() | some.text()), max_size=5), some.booleans())
def test_a_watch_is_read_object_by_object(items: list[dict[str, int | str]], pretty: bool) -> None:
    indent = 4 if pretty else None
    stream = "".join(json.dumps({"type": "ADDED", "object": item}, indent=indent) + "\n" for item in items)
    assert [item for _, item in objects(io.StringIO(stream))] == items


def test_the_ledger_forgets_a_torn_line_and_nothing_else(tmp_path: Path) -> None:
    ledger = Ledger(state=tmp_path)
    ledger.note("netns", "one")
    ledger.note("rule", "filter", "FORWARD", "-j", "ACCEPT")
    with ledger.file.open("a") as out:
        out.write('["netns", "tw')
    assert ledger.entries() == [("netns", ["one"]), ("rule", ["filter", "FORWARD", "-j", "ACCEPT"])]


def test_addresses_that_the_machine_routes_are_left_alone() -> None:
    used = [ipaddress.IPv4Network("172.30.0.0/16"), ipaddress.IPv4Network("10.201.4.0/24")]
    assert not Subnets(index=0).free(used[:1])
    assert not Subnets(index=1).free(used[1:])
    assert Subnets(index=2).free(used[1:])


def test_addresses_of_a_cluster_with_ipv6_alone_do_not_overlap() -> None:
    subnets = Subnets(index=7, ipv6=True)
    blocks = [ipaddress.ip_network(each) for each in (subnets.nodes, subnets.node_pods(0), subnets.node_pods(1))]
    assert not any(one.overlaps(other) for one in blocks for other in blocks if one is not other)
    for number in range(2):
        assert ipaddress.ip_address(subnets.node(number)) in blocks[0]
        assert blocks[1 + number].subnet_of(ipaddress.ip_network(subnets.pods))  # type: ignore[arg-type]
    assert not subnets.free([ipaddress.ip_network("fd5e:7::2")])
    assert subnets.free([ipaddress.ip_network("fd00::/64"), ipaddress.ip_network("fd5e:8::/64")])


def test_waiting_says_what_was_seen_instead() -> None:
    with pytest.raises(DeadlineError, match=r"not within 0 s: rain\nsunshine"):
        waiting.until("rain", lambda: False, within_seconds=0, every_seconds=0, seen=lambda: "sunshine")
