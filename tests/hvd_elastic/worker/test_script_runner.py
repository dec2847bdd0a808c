"""A program run by the standby behaves as under `python` itself: the two are run side by side and compared."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit, Standby
from hvd_elastic.worker.standby.program import Program, read_program
from hvd_elastic.worker.standby.standby_command import standby_command
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Yard

pytestmark = pytest.mark.process

LOOK = """
import sys, json
print(__name__, __file__, __spec__ and __spec__.name, sys.argv, sys.path[0], type(__builtins__), sorted(globals()))
import __main__
print(__main__.__dict__ is globals())
"""
POOL = """
import time
from concurrent.futures import ThreadPoolExecutor
ThreadPoolExecutor(2).submit(lambda: (time.sleep(0.2), print("pool")))
"""
SPAWN = """
import multiprocessing
def child():
    print("child", __name__)
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
    print(process.exitcode)
"""
LOOK_FROM_MODULE = LOOK.replace(", type(__builtins__), sorted(globals())", "")


def both(yard: Yard, *arguments: str) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    program = read_program([sys.executable, *arguments], {"PATH": ""})
    assert isinstance(program, Program)
    commands = [sys.executable, "-u", *arguments], standby_command(program, mode=Standby.OFF, channel=-1)
    environment = {"PYTHONPATH": yard.python_path, "PATH": "/usr/bin:/bin"}
    stock, ours = (
        subprocess.run(
            command,
            env=environment,
            cwd=yard.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        for command in commands
    )
    return stock, ours


@pytest.mark.parametrize(
    "source",
    [
        LOOK,
        "import sys; sys.exit()",
        "import sys; sys.exit(7)",
        "import sys; sys.exit(-1)",
        "import sys; sys.exit(300)",
        "import sys; sys.exit('a message')",
        "import sys; sys.exit(True)",
        "def f():\n    1 / 0\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('x')",
        "def broken(:\n    pass",
        "import atexit; atexit.register(print, 'at exit'); raise ValueError('first')",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()",
        POOL,
        "import sys; sys.stdout.write('no newline')",
        "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__, a[2].tb_frame.f_code.co_name)\n1 / 0",
        "import neighbour; print(neighbour.VALUE)",
        SPAWN,
        "step: int = 1\nimport __main__; print(__main__.__annotations__)",
        "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A())).__class__.__module__)",
    ],
)
@pytest.mark.distribution
def test_scripts(yard: Yard, source: str) -> None:
    yard.write(source)
    yard.write("VALUE = 5", "neighbour.py")
    stock, ours = both(yard, "train.py", "--epochs", "3", "-m", "x")
    assert (ours.stdout, ours.stderr, ours.returncode) == (stock.stdout, stock.stderr, stock.returncode)


@pytest.mark.core
@pytest.mark.parametrize(
    "arguments", [["-m", "pkg", "a"], ["-m", "pkg.inner"], ["-Wignore", "folder"], ["app.zip", "b"]]
)
def test_modules_folders_and_archives(yard: Yard, arguments: list[str]) -> None:
    for name in ("pkg/__init__.py", "pkg/__main__.py", "pkg/inner.py", "folder/__main__.py"):
        yard.write(LOOK_FROM_MODULE if "init" not in name else "", name)
    with zipfile.ZipFile(yard.folder / "app.zip", "w") as archive:
        archive.writestr("__main__.py", LOOK_FROM_MODULE)
    stock, ours = both(yard, *arguments)
    # A folder or an archive finds itself in sys.argv[0] by its absolute path, the one difference.
    expected = stock.stdout.replace(f"['{arguments[-1]}'", f"['{yard.folder / arguments[-1]}'")
    expected = expected.replace("['app.zip'", f"['{yard.folder / 'app.zip'}'")
    assert (ours.stdout, ours.stderr, ours.returncode) == (expected, stock.stderr, stock.returncode)


def test_a_script_that_is_not_there(yard: Yard) -> None:
    stock, ours = both(yard, "nowhere.py")
    assert (ours.stderr, ours.returncode) == (stock.stderr, stock.returncode)


def test_a_module_that_is_not_there_has_no_traceback(yard: Yard) -> None:
    _, ours = both(yard, "-m", "nowhere")
    assert (ours.returncode, "No module named nowhere" in ours.stderr, "Traceback" in ours.stderr) == (1, True, False)


def test_a_symbolic_link_finds_its_targets_neighbours(yard: Yard, tmp_path: Path) -> None:
    yard.write("import neighbour, sys; print(neighbour.VALUE, __file__, sys.path[0])", "deep/train.py")
    yard.write("VALUE = 6", "deep/neighbour.py")
    (yard.folder / "link.py").symlink_to("deep/train.py")
    stock, ours = both(yard, "link.py")
    assert ours.stdout == stock.stdout
    assert ours.stdout.startswith("6")


def test_the_current_folder_cannot_shadow_our_own_packages(yard: Yard) -> None:
    yard.write("print('worked')")
    yard.write("raise RuntimeError('imported by mistake')", "trainer.py")
    yard.write("raise RuntimeError('imported by mistake')", "mpijob.py")
    _, ours = both(yard, "train.py")
    assert (ours.stdout, ours.stderr) == ("worked\n", "")


def test_a_question_without_a_terminal_is_a_mistake_of_the_script(yard: Yard) -> None:
    yard.write("input('overwrite? ')")
    stock, ours = both(yard, "train.py")
    assert (stock.returncode, ours.returncode) == (1, Exit.SCRIPT_MISTAKE)
    assert ours.stderr.startswith(stock.stderr)
    assert "hvd-elastic: input() at train.py:1 in <module>: a worker has no terminal" in ours.stderr
