import contextlib
import os
import socket
import threading

import pytest

from hvd_elastic.trainer.elastic.world.gloo_sockets import WorldSockets


def gloo_pair() -> tuple[socket.socket, socket.socket]:
    """A connection that is made as Gloo makes it."""
    with socket.socket() as listening, contextlib.ExitStack() as failing:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        connecting = failing.enter_context(socket.socket())
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connecting.connect(listening.getsockname())
        accepted, _ = listening.accept()
        failing.pop_all()
    for each in (connecting, accepted):
        each.set_inheritable(True)
    return connecting, accepted


@pytest.fixture
def pairs() -> list[socket.socket]:
    return []


def test_only_the_worlds_sockets_are_cut(pairs: list[socket.socket]) -> None:
    mine, other = socket.socketpair()
    world = WorldSockets()
    world.note(lambda: pairs.extend(gloo_pair()))
    left, right = pairs
    right.close()
    assert world.cut() == 1
    assert left.recv(1) == b""
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        left.send(b"x")
    mine.send(b"x")
    assert other.recv(1) == b"x"
    assert world.cut() == 0
    for each in (mine, other, left):
        each.close()


def test_what_fails_to_form_is_cut_too(pairs: list[socket.socket]) -> None:
    def fail() -> None:
        pairs.extend(gloo_pair())
        raise RuntimeError("no world")

    world = WorldSockets()
    with pytest.raises(RuntimeError, match="no world"):
        world.note(fail)
    assert world.cut() == 2
    for each in pairs:
        each.close()


def test_what_other_threads_open_meanwhile_is_not_cut(pairs: list[socket.socket]) -> None:
    """A loader reads from an object store, a metrics server answers, an asyncio loop wakes itself up."""
    others: list[socket.socket] = []

    def open_others() -> None:
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        others.extend((*socket.socketpair(), client, server.accept()[0], server))

    def init() -> None:
        thread = threading.Thread(target=open_others)
        thread.start()
        thread.join()
        pairs.extend(gloo_pair())

    world = WorldSockets()
    world.note(init)
    world.cut_new()
    assert world.cut() == 2
    for one, other in (others[:2], others[2:4]):
        one.send(b"x")
        assert other.recv(1) == b"x"
    with socket.create_connection(others[4].getsockname()):
        others[4].accept()[0].close()
    for each in (*others, *pairs):
        each.close()


def test_an_init_that_waits_for_a_peer_is_ended_from_another_thread() -> None:
    kept, other = socket.socketpair()
    listening = threading.Event()
    ended: list[OSError] = []

    def wait_for_a_peer() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.set_inheritable(True)  # as Gloo's
            listening.set()
            with pytest.raises(OSError, match="Invalid argument") as error:
                server.accept()
            ended.append(error.value)

    world = WorldSockets()
    waiting = threading.Thread(target=world.note, args=(wait_for_a_peer,))
    waiting.start()
    listening.wait(60)
    while waiting.is_alive():  # `accept` may not have been called yet
        world.cut_new()
        waiting.join(0.05)
    assert ended
    kept.send(b"x")
    assert other.recv(1) == b"x"
    kept.close()
    other.close()


def test_a_childs_copy_keeps_no_connection_open(pairs: list[socket.socket]) -> None:
    """A loader's process outlives a killed training process by seconds; peers must not wait for it."""
    world = WorldSockets()
    world.note(lambda: pairs.extend(gloo_pair()))
    left, right = pairs
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(len(world.descriptors())).encode())
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 10) == b"0"
    os.waitpid(child, 0)
    os.close(reading)
    left.send(b"x")
    assert right.recv(1) == b"x"
    left.close()
    right.close()
