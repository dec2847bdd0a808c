"""Runs a Python program as `python` itself would, in a process that is already prepared, and ends it quickly."""

import atexit
import builtins
import contextlib
import importlib.machinery
import io
import os
import pkgutil
import runpy
import signal
import sys
import threading
import types
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.elastic import fixed_world
from hvd_elastic.trainer.elastic.mistakes import explained_errors, script_mistake

_OURS: Final = (str(Path(__file__).parent) + os.sep, "<frozen runpy>", runpy.__file__)
"""Files of the frames between the interpreter and the user's script, which would hide where the script failed."""


def run(target: str, arguments: Sequence[str], *, is_module: bool, neighbours: bool) -> int:
    """Run a script (`python target`) or module (`python -m target`) as `__main__`. Return its exit code.

    `neighbours`: put its folder (for a module the working directory) first on sys.path, as Python does without -P and
    -I. An uncaught exception is printed as Python prints it, without the frames of this package; after it, where it is
    known, the cause, and then the code is Exit.SCRIPT_MISTAKE.
    """
    sys.argv = [target, *arguments]
    is_file = not is_module and pkgutil.get_importer(target) is None
    if neighbours and (is_module or is_file):
        sys.path.insert(0, str(Path.cwd()) if is_module else str(Path(target).resolve().parent))
    try:
        _execute(target, is_module=is_module, is_file=is_file)
    except SystemExit as end_:
        return _exit_code(end_)
    except BaseException as error:  # noqa: BLE001  the interpreter would report any exception and end
        fixed_world.THIS_PROCESS.begin_again_if_lost(error)
        _report(error)
        if (cause := explained_errors.find(error)) is not None:
            script_mistake.say([cause])
            return Exit.SCRIPT_MISTAKE
        return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _execute(target: str, *, is_module: bool, is_file: bool) -> None:
    if is_module:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    elif is_file:
        _execute_file(Path(target))
    else:  # a folder or an archive with a __main__.py; absolute, like its sys.path[0] (sys.argv[0] follows it here)
        runpy.run_path(str(Path(target).absolute()), run_name="__main__")


def _execute_file(path: Path) -> None:
    """As `python path`. `__file__` is absolute (adoption changes the working directory), sys.argv[0] is as given."""
    name = str(path.absolute())
    try:
        with io.open_code(name) as file:
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {name!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from error
    main = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", name)
    names: dict[str, object] = {"__file__": name, "__cached__": None, "__loader__": loader, "__builtins__": builtins}
    if sys.version_info < (3, 14):  # since then they are made when they are asked for (PEP 649)
        names["__annotations__"] = {}
    main.__dict__.update(names)
    sys.modules["__main__"] = main
    exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)  # noqa: S102


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)  # noqa: T201
    return 1


def _report(error: BaseException) -> None:
    trimmed = error.with_traceback(_without_ours(error.__traceback__))
    try:
        sys.excepthook(type(trimmed), trimmed, trimmed.__traceback__)
    except Exception:  # noqa: BLE001  a broken hook must not hide the script's error
        sys.__excepthook__(type(trimmed), trimmed, trimmed.__traceback__)


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    # No frame is left of a script that does not compile; Python shows none for it either.
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def end(code: int) -> NoReturn:
    """End this process with `code`, as Python does, but without the interpreter's teardown.

    With torch and Horovod loaded the teardown takes 1.8 s, in which the survivors and an inference pod wait. What users
    rely on still happens: non-daemon threads are waited for, atexit functions run, output is flushed.
    """
    with contextlib.suppress(Exception):
        # Private, but the only way to end the idle threads of concurrent.futures as Python does (3.11 to 3.15).
        threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
