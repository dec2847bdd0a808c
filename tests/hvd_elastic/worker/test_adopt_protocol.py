"""The request on ADOPT_SOCKET: what goes in comes out, and nothing else is taken for one."""

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.mpijob.contract import ENV_HOST_ADDRESS
from hvd_elastic.worker.adoption.adopt_protocol import AdoptedCommand, AdoptRequest, BadRequestError
from hvd_elastic.worker.adoption.adopted_environment import KEPT, adopted_environment, with_interfaces

texts = st.binary(max_size=8).map(lambda data: os.fsdecode(data.replace(b"\0", b"\n")))
names = texts.map(lambda text: "N" + text.replace("=", "-"))


@given(st.lists(texts, min_size=1, max_size=3), texts, st.dictionaries(names, texts, max_size=3))
def test_a_command_survives_the_way(argv: list[str], directory: str, environment: dict[str, str]) -> None:
    """In the form in which `adopt_client.py` sends it."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    memory = os.memfd_create("command")
    os.write(memory, b"\0".join(map(os.fsencode, (directory, str(len(argv)), *argv, *variables))))
    request = AdoptRequest(memory=memory, stdio=(-1, -1, -1))
    assert request.read() == AdoptedCommand(argv=tuple(argv), directory=directory, environment=environment)
    request.close()
    request.close()


@given(st.binary(max_size=200))
def test_any_other_bytes_are_a_command_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadRequestError):
        assert AdoptedCommand.decode(data).argv


def test_a_descriptor_that_is_no_memory_file_is_refused() -> None:
    read, write = os.pipe()
    with pytest.raises(BadRequestError):
        AdoptRequest(memory=read, stdio=(-1, -1, -1)).read()
    os.close(read)
    os.close(write)


@given(
    st.dictionaries(names, texts, max_size=3), st.dictionaries(names, texts, max_size=3), st.sets(st.sampled_from(KEPT))
)
def test_the_launchers_environment_wins_but_for_what_describes_the_pod(
    pod: dict[str, str], launcher: dict[str, str], described: set[str]
) -> None:
    pod |= dict.fromkeys(described, "the pod's")
    launcher |= dict.fromkeys(KEPT, "the launcher's")
    merged = adopted_environment(pod, launcher)
    assert merged.keys() == (pod.keys() | launcher.keys()) - (set(KEPT) - pod.keys())
    for name, value in merged.items():
        assert value == (pod[name] if name in KEPT else launcher.get(name, pod.get(name)))


GLOO, NCCL = "HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"
LAUNCHERS = {GLOO: "eth0", NCCL: "eth0", ENV_HOST_ADDRESS: "192.0.2.1"}


def test_on_its_nodes_network_a_worker_finds_the_interface() -> None:
    pod = with_interfaces({ENV_HOST_ADDRESS: "127.0.0.1", NCCL: "ib0"})
    assert (pod[GLOO], pod[NCCL]) == ("lo", "ib0")
    assert adopted_environment(pod, LAUNCHERS) == pod


def test_in_a_network_of_its_own_it_uses_the_launchers() -> None:
    pod = with_interfaces({NCCL: "eth1"})
    assert pod == {NCCL: "eth1"}
    assert adopted_environment(pod, LAUNCHERS) == {GLOO: "eth0", NCCL: "eth0"}


def test_an_address_that_no_interface_has_is_said(caplog: pytest.LogCaptureFixture) -> None:
    pod = {ENV_HOST_ADDRESS: "192.0.2.1"}
    assert with_interfaces(pod) == pod
    assert "no network interface has this node's address, 192.0.2.1" in caplog.text
