"""Which errors of a script are explained, and that others are left as they are."""

import io
import sys
from collections.abc import Callable
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.mistakes.explained_errors import find, leave_if_known


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())


def raised(function: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as info:
        function()
    return info.value


def ask() -> str:
    return input("overwrite? ")


def stop() -> None:
    import pdb

    debugger = pdb.Pdb(stdin=sys.stdin, stdout=io.StringIO())
    debugger.use_rawinput = False
    debugger.set_trace()


def test_a_question_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised(ask)
    words = find(error)
    assert words is not None
    assert words.startswith("input() at test_explained_errors.py:")
    assert " in ask: " in words
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert find(error) is None, "somebody has typed Ctrl-D"


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="pdb asks before it ends a process")
def test_a_breakpoint_without_a_terminal() -> None:
    words = find(raised(stop))
    assert words is not None
    assert "the debugger has stopped at test_explained_errors.py:" in words


def test_other_ends_of_files_are_the_scripts() -> None:
    assert find(EOFError("Ran out of input")) is None
    assert find(raised(lambda: int("x"))) is None


def test_a_block_that_is_used_twice_under_checkpointing(monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    block = torch.nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(block.parameters(), lr=0.1), block.named_parameters())

    def backward(*, use_reentrant: bool) -> None:
        value = torch.ones(1, 2, requires_grad=True)
        for _ in range(2):
            value = checkpoint(block, value, use_reentrant=use_reentrant)
        value.sum().backward()  # type: ignore[no-untyped-call]

    backward(use_reentrant=False)
    optimizer.step()
    words = find(raised(lambda: backward(use_reentrant=True)))
    assert words is not None
    assert "use_reentrant=False" in words
    optimizer.synchronize()


def test_two_operations_of_the_same_name() -> None:
    """As those of two optimizers are whose parameters have the same names."""
    horovod_patches.init()

    def both() -> None:
        while True:  # until the first is still under way when the second begins
            handles = [hvd.allreduce_async(torch.ones(1 << 20), name="0.weight") for _ in range(2)]
            for handle in handles:
                hvd.synchronize(handle)

    words = find(raised(both))
    assert words is not None
    assert 'named_parameters(prefix="generator")' in words


writer: Any = None


def write() -> None:
    writer.add_scalar("loss", 0.1, 7)


def write_what_was_never_made() -> None:
    never_made.add_scalar("loss", 0.1, 7)  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("function", [write, write_what_was_never_made])
def test_a_writer_of_another_rank_0(function: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    error = raised(function)
    assert find(error, began_as=0, rank=0) is None
    assert find(error, began_as=2, rank=1) is None
    with pytest.raises(SystemExit) as ended:
        leave_if_known(error, began_as=2, rank=0)
    assert ended.value.code == Exit.SCRIPT_MISTAKE
    said = capsys.readouterr().err
    assert "Traceback" in said, "the line is needed"
    assert "was rank 2 at the beginning, and is rank 0 since a resize" in said


def test_an_attribute_of_something_else_is_the_scripts() -> None:
    assert find(raised(lambda: object().step), began_as=2, rank=0) is None  # type: ignore[attr-defined]
    assert find(AttributeError("no such column"), began_as=2, rank=0) is None
