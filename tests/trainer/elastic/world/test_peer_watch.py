import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hvd_elastic.trainer.elastic.world import peer_watch
from hvd_elastic.trainer.elastic.world.gloo_sockets import WorldSockets
from hvd_elastic.trainer.elastic.world.peer_watch import PeerWatch, TcpInfo
from testbed.debian_programs import needed

PEER = """
import signal, socket, sys
server = socket.create_server((sys.argv[1], 4000))
print("listening", flush=True)
connections = [server.accept() for _ in range(2)]
signal.pause()
"""


@pytest.mark.parametrize(
    ("probes", "unacknowledged", "retransmissions", "silence", "lost"),
    [
        pytest.param(2, 0, 0, 2300, True, id="two probes"),
        pytest.param(2, 0, 0, 2010, False, id="the second probe may still be answered"),
        pytest.param(0, 1, 3, 1600, True, id="data that was sent four times"),
        pytest.param(0, 5, 1, 400, False, id="one packet was lost"),
        pytest.param(0, 0, 0, 900, False, id="idle, and answers"),
        pytest.param(1, 0, 0, 60_000, False, id="does not read, and answers each probe"),
        pytest.param(0, 0, 0, 9000, False, id="was not asked"),
    ],
)
def test_which_peers_are_lost(probes: int, unacknowledged: int, retransmissions: int, silence: int, lost: bool) -> None:
    info = TcpInfo(
        is_established=True,
        retransmissions=retransmissions,
        probes=probes,
        unacknowledged=unacknowledged,
        acknowledged_milliseconds=silence,
    )
    assert info.is_peer_lost is lost
    assert not replace(info, is_established=False).is_peer_lost


def test_a_descriptor_that_another_part_has_closed_is_left_alone(tmp_path: Path) -> None:
    """And one that is a file by now."""
    with socket.socket() as closed:
        number = closed.fileno()
    with (tmp_path / "file").open("w") as file:
        descriptors = [number, file.fileno()]
        peer_watch.probe_hosts(descriptors)
        assert peer_watch._lost_hosts(descriptors) == set()
        peer_watch._shut_down(descriptors, {"192.0.2.1"})
        assert file.write("x") == 1


def test_other_sockets_are_left_alone() -> None:
    left, right = socket.socketpair()
    world = WorldSockets()
    world.note(lambda: None)
    descriptors = [left.fileno(), 9999, sys.stderr.fileno()]
    watch = PeerWatch(probed=lambda: descriptors, all_sockets=lambda: descriptors)
    watch.start()
    with pytest.raises(OSError, match="not supported"):
        TcpInfo.of(left)
    watch.stop()
    left.send(b"x")
    assert right.recv(1) == b"x"
    left.close()
    right.close()


@dataclass
class Machine:
    """Another machine: a network namespace at the end of a cable."""

    name: str
    world: WorldSockets
    connections: list[socket.socket]
    """The world's two, to a process there that reads nothing."""

    def pull_the_cable(self) -> None:
        subprocess.run(["ip", "-n", self.name, "link", "set", f"{self.name}b", "down"], check=True)


def connected_as_gloo_does(address: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    connection.set_inheritable(True)
    connection.connect((address, 4000))
    return connection


@pytest.fixture
def machine() -> Iterator[Machine]:
    name = f"peer{os.getpid()}"
    here, there = (f"198.51.100.{os.getpid() % 64 * 4 + host}" for host in (1, 2))  # of a test beside this one: another
    commands = [
        f"ip netns add {name}",
        f"ip link add {name}a type veth peer name {name}b netns {name}",
        f"ip addr add {here}/30 dev {name}a",
        f"ip link set {name}a up",
        f"ip -n {name} addr add {there}/30 dev {name}b",
        f"ip -n {name} link set {name}b up",
    ]
    needed("ip")
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False, capture_output=True)
        stack.callback(subprocess.run, ["ip", "link", "del", f"{name}a"], check=False, capture_output=True)
        for command in commands:
            if subprocess.run(command.split(), check=False, capture_output=True).returncode:
                pytest.skip("makes network namespaces: only root may")
        listener = ["ip", "netns", "exec", name, sys.executable, "-c", PEER, there]
        peer = stack.enter_context(subprocess.Popen(listener, stdout=subprocess.PIPE, text=True))
        stack.callback(peer.kill)
        assert peer.stdout is not None
        assert peer.stdout.readline() == "listening\n"
        world, made = WorldSockets(), list[socket.socket]()
        world.note(lambda: made.extend(connected_as_gloo_does(there) for _ in range(2)))
        for each in made:
            stack.callback(each.close)
        yield Machine(name, world, made)


@pytest.mark.process
def test_one_connection_to_each_host_is_probed(machine: Machine) -> None:
    """Not every one: the kernel drops some of many thousand probes a second, and living hosts are taken for lost."""
    probed = [each.fileno() for each in machine.connections if each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]
    assert machine.world.probed() == probed
    assert len(probed) == 1
    assert machine.world.descriptors() == [each.fileno() for each in machine.connections]


def test_this_host_is_not_probed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        assert peer_watch.probe_hosts([server.fileno(), connection.fileno()]) == []
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


@pytest.mark.core
@pytest.mark.process
@pytest.mark.parametrize("sends", [False, True], ids=["waits for data", "has sent data"])
def test_a_pulled_cable_ends_what_waits_for_the_lost_host(machine: Machine, sends: bool) -> None:
    """TCP itself would wait for a quarter of an hour."""
    watch = PeerWatch(probed=machine.world.probed, all_sockets=machine.world.descriptors)
    watch.start()
    machine.pull_the_cable()
    if sends:
        machine.connections[0].send(b"x")
    for each in machine.connections:
        each.settimeout(60)
        assert each.recv(1) == b"", "the watch has shut it down"
    watch.stop()


@pytest.mark.process
def test_a_peer_that_does_not_read_is_not_lost(machine: Machine) -> None:
    """A stopped or busy process: its kernel answers, although nothing more fits into its buffers."""
    connection = machine.connections[0]
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            connection.send(bytes(1 << 16))
    # Until the probes are so far apart that the peer could seem lost.
    deadline = time.monotonic() + 60
    while (info := TcpInfo.of(connection)).acknowledged_milliseconds < 2500 and time.monotonic() < deadline:
        assert not info.is_peer_lost
        time.sleep(0.01)
    assert not TcpInfo.of(connection).is_peer_lost
