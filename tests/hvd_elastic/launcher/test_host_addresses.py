"""Hosts by name: whatever DNS does, hosts whose addresses are known are used meanwhile."""

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import psutil
import pytest

from hvd_elastic.discovery.expected_workers import ExpectedWorker
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.remote import host_addresses, network_interfaces
from hvd_elastic.launcher.remote.command_runner import LocalCommandRunner, MixedCommandRunner
from hvd_elastic.launcher.remote.host_addresses import HostAddresses


class Dns:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.changed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.addresses = HostAddresses(lambda: self.changed.put(None), look_up=self._look_up)

    def _look_up(self, name: str) -> str:
        self.asked.put(name)
        answer = self.answers.get()
        if answer is None:
            raise OSError("no such name")
        return answer

    def answer(self, number: str | None) -> None:
        self.answers.put(number)
        self.changed.get(timeout=20)


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dns]:
    monkeypatch.setattr(host_addresses, "RETRY_SECONDS", 0.0)
    made = Dns()
    yield made
    made.addresses.expect(())
    made.answers.put("10.0.0.1")


def test_numbers_are_known_at_once(dns: Dns) -> None:
    dns.addresses.expect(["10.1.2.3", "root@127.0.0.1", "127.0.0.1"])
    assert [dns.addresses.number(address) for address in ("10.1.2.3", "root@127.0.0.1")] == ["10.1.2.3", "127.0.0.1"]
    assert dns.addresses.is_local("127.0.0.1")
    assert not dns.addresses.is_local("10.1.2.3")
    assert not dns.addresses.is_local("root@127.0.0.1"), "another user"
    assert dns.asked.empty()


def test_an_ipv6_address_is_a_number(dns: Dns) -> None:
    dns.addresses.expect(["fd00::1", "root@::1"])
    assert [dns.addresses.number(address) for address in ("fd00::1", "root@::1")] == ["fd00::1", "::1"]
    assert not dns.addresses.is_local("fd00::1")
    assert dns.asked.empty()


@pytest.mark.parametrize(
    ("known", "number"), [(["fd00::1", "10.0.0.1"], "10.0.0.1"), (["fd00::1", "fd00::2"], "fd00::1")]
)
def test_of_a_name_with_both_kinds_of_address_ipv4_counts(
    monkeypatch: pytest.MonkeyPatch, known: list[str], number: str
) -> None:
    def answers(*_: object, **__: object) -> list[object]:
        families = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in known]
        return [(family, 1, 6, "", (each, 0)) for family, each in zip(families, known, strict=True)]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    assert host_addresses.look_up("node") == number


@pytest.mark.parametrize(
    ("addresses", "taken"),
    [
        (["fe80::1%eth7", "fd00::1", "10.0.0.1"], "10.0.0.1"),
        (["fe80::1%eth7", "fd00::1"], "fd00::1"),
        (["fe80::1%eth7"], None),
    ],
)
def test_an_interfaces_address_is_the_one_that_gloo_takes(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], taken: str | None
) -> None:
    listed = [
        SimpleNamespace(family=socket.AF_INET6 if ":" in each else socket.AF_INET, address=each) for each in addresses
    ]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth7": listed})
    if taken is None:
        with pytest.raises(OSError, match="eth7 with an IP address"):
            network_interfaces.interface_address("eth7")
    else:
        assert network_interfaces.interface_address("eth7") == taken


def test_a_name_is_known_once_dns_has_answered(dns: Dns) -> None:
    dns.addresses.expect(["node"])
    assert not dns.addresses.is_known("node")
    dns.answer("127.0.0.1")
    assert dns.addresses.is_known("node")
    assert dns.addresses.is_local("node")


def test_a_name_that_dns_does_not_know_is_asked_again_and_left_to_ssh_meanwhile(dns: Dns) -> None:
    dns.addresses.expect(["node"])
    dns.answer(None)
    assert dns.addresses.is_known("node")
    assert not dns.addresses.is_local("node")
    with pytest.raises(OSError, match="DNS does not know node"):
        dns.addresses.number("node")
    dns.answer("10.1.2.3")
    assert dns.addresses.number("node") == "10.1.2.3"


def test_a_name_that_has_left_is_asked_anew_when_it_comes_back(dns: Dns) -> None:
    dns.addresses.expect(["node"])
    dns.answer("10.1.2.3")
    dns.addresses.expect([])
    dns.addresses.expect(["node"])
    assert not dns.addresses.is_known("node")
    dns.answer("10.1.2.4")
    assert dns.addresses.number("node") == "10.1.2.4"


class Remote(LocalCommandRunner):
    def __init__(self) -> None:
        super().__init__()
        self.expected: tuple[Host, ...] = ()
        self.workers: tuple[ExpectedWorker, ...] = ()

    def expect(self, hosts: tuple[Host, ...], workers: tuple[ExpectedWorker, ...] = ()) -> None:
        self.expected, self.workers = hosts, workers


def test_hosts_are_used_while_dns_is_asked_for_others(dns: Dns) -> None:
    here, there, user = (Host(alias=a, address=a, slots=1) for a in ("127.0.0.1", "node", "root@127.0.0.1"))
    remote = Remote()
    runner = MixedCommandRunner(LocalCommandRunner(), remote, dns.addresses)
    _in_time(lambda: runner.expect((here, there, user)))
    assert [runner.is_open(host) for host in (here, there, user)] == [True, False, True]
    assert remote.expected[0:] == (user,)
    dns.answer("10.1.2.3")
    runner.expect((here, there, user))
    assert runner.is_open(there)
    assert remote.expected == (there, user)
    ours, others = (ExpectedWorker(uid="a", address=address) for address in ("127.0.0.1", "10.1.2.9"))
    runner.expect((here, there, user), (ours, others))
    assert remote.workers == (others,)


def _in_time(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for DNS"
