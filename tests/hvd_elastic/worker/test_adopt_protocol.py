"""The request on ADOPT_SOCKET: what goes in comes out, and nothing else is taken for one."""

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.worker.adoption.adopt_protocol import AdoptedCommand, AdoptRequest, BadRequestError, memory_file
from hvd_elastic.worker.adoption.adopted_environment import KEPT, adopted_environment

texts = st.binary(max_size=8).map(lambda data: os.fsdecode(data.replace(b"\0", b"\n")))
names = texts.map(lambda text: "N" + text.replace("=", "-"))


@given(st.lists(texts, min_size=1, max_size=3), texts, st.dictionaries(names, texts, max_size=3))
def test_a_command_survives_the_way(argv: list[str], directory: str, environment: dict[str, str]) -> None:
    command = AdoptedCommand(argv=tuple(argv), directory=directory, environment=environment)
    request = AdoptRequest(memory=memory_file(command), stdio=(-1, -1, -1))
    assert request.read() == command
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
