"""Why a test is skipped where GPUs are missing, and the summary of `make test-gpu`."""

from pathlib import Path

import pytest

from tests.gpu import machine

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
TESTS = '''
import pytest

@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skip(reason="needs a GPU: none"))])
def test_copies(device, record_property):
    """Copies are made. At once."""
    record_property("copied after", "3.0 ms")

def test_broken():
    """NCCL is there."""
    assert False
'''


def pretend(monkeypatch: pytest.MonkeyPatch, *, gpus: int, files: int) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: gpus)
    monkeypatch.setattr(machine, "device_files", lambda: files)


@pytest.mark.parametrize(
    ("gpus", "files", "needed", "why"),
    [
        (0, 0, 0, None),
        (2, 2, 2, None),
        (0, 0, 1, "needs a GPU: this machine has none"),
        (1, 1, 2, "needs 2 GPUs: this machine has 1"),
    ],
)
def test_why_a_test_is_skipped(
    monkeypatch: pytest.MonkeyPatch, gpus: int, files: int, needed: int, why: str | None
) -> None:
    pretend(monkeypatch, gpus=gpus, files=files)
    assert machine.why_skipped(needed) == why


def test_a_gpu_that_torch_cannot_use_is_not_one_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, gpus=0, files=8)
    monkeypatch.setattr(machine, "_cuda_error", lambda: "the driver is too old")
    assert machine.why_skipped(1) == "needs a GPU: /dev has 8, of which torch finds none (the driver is too old)"


def test_the_summary_says_what_was_shown_and_what_was_not(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # this session would import hypothesis anew
    monkeypatch.setattr(machine, "description", lambda: ["GPUs: none"])
    pretend(monkeypatch, gpus=0, files=0)
    pytester.syspathinsert(ROOT)
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess("-p", "tests.gpu.report", "-p", "no:cacheprovider")
    done.stdout.fnmatch_lines(
        [
            "GPUs: none",
            "*what was shown, and on what*",
            "on a CPU  Copies are made [[]cpu[]]; copied after: 3.0 ms",
            "FAILED    NCCL is there",
            "not shown Copies are made [[]cuda[]]: needs a GPU: none",
            "No GPU: 1 of 3 tests were skipped*",
        ]
    )
