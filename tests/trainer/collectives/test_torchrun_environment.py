"""What a script of torchrun's finds in its environment before it has formed its group."""

import os
import threading
from collections.abc import Iterator

import pytest

from hvd_elastic.trainer.collectives.torch_engine.torchrun_environment import TorchrunEnvironment


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchrunEnvironment]:
    for name in ("RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "before")
    asked = TorchrunEnvironment()
    yield asked
    asked.world_known()


@pytest.mark.parametrize(
    "read",
    [
        lambda: os.environ["RANK"],
        lambda: os.environ.get("RANK", "-1"),
        lambda: os.getenv("RANK", "-1"),
        lambda: "RANK" in os.environ and os.environ["RANK"],
    ],
)
def test_a_read_waits_for_the_world_however_it_is_written(
    environment: TorchrunEnvironment, monkeypatch: pytest.MonkeyPatch, read: object
) -> None:
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        monkeypatch.setenv("RANK", "3")

    environment.await_world(ask)
    assert callable(read)
    assert [read(), read()] == ["3", "3"]
    assert asked == [1]


def test_what_has_nothing_to_do_with_it_is_read_as_ever(environment: TorchrunEnvironment) -> None:
    environment.await_world(lambda: pytest.fail("it was asked"))
    assert os.environ.get("NO_SUCH_VARIABLE") is None
    assert "RANK" not in dict(os.environ)
    with pytest.raises(KeyError):
        os.environ["NO_SUCH_VARIABLE"]


def test_that_it_is_torchrun_is_known_at_once(environment: TorchrunEnvironment) -> None:
    """Lightning asks by it whether its processes are there already."""
    environment.await_world(lambda: pytest.fail("it was asked"))
    assert os.environ["TORCHELASTIC_RUN_ID"] == "local"


def test_a_library_that_guesses_as_it_is_imported_does_not_wait(environment: TorchrunEnvironment) -> None:
    """Those that train would wait until it is."""
    environment.await_world(lambda: pytest.fail("it was asked"))
    module = {"__name__": "lightning_fabric.utilities.rank_zero"}
    exec("import os\ndef rank():\n    return os.environ.get('RANK')\nfound = rank()", module)
    assert module["found"] is None


def test_another_thread_does_not_wait(environment: TorchrunEnvironment) -> None:
    """A standby waits in its main thread."""
    environment.await_world(lambda: pytest.fail("it was asked"))
    found: list[str | None] = []
    thread = threading.Thread(target=lambda: found.append(os.environ.get("RANK")))
    thread.start()
    thread.join()
    assert found == [None]


def test_numbers_of_another_world_are_forgotten(
    environment: TorchrunEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    environment.await_world(lambda: monkeypatch.setenv("WORLD_SIZE", "2"))
    assert os.environ["WORLD_SIZE"] == "2"


def test_once_the_world_is_known_nothing_is_asked(environment: TorchrunEnvironment) -> None:
    stock = type(os.environ).__getitem__
    environment.await_world(lambda: pytest.fail("it was asked"))
    environment.world_known()
    assert type(os.environ).__getitem__ is stock
    assert os.environ.get("RANK") is None
