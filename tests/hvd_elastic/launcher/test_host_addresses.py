"""Hosts by name: whatever DNS does, hosts whose addresses are known are used meanwhile."""

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from hvd_elastic.discovery.expected_workers import ExpectedWorker
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.remote import host_addresses
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
