"""The standby: runs the job's script up to its first `hvd.init()`, waits there, and is then the training process.

The entry point starts it as `python -m hvd_elastic.worker.standby.standby`. It waits there, not right after the
imports, for two reasons: the script's own set-up takes half of a start's time, and a newcomer that dies on its way
costs the job nothing. Nothing forks after the imports: a child of a process in which torch has run an operation hangs
in its first operation.
"""

import argparse
import contextlib
import functools
import gc
import importlib
import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, Self

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_COMPILER, ENV_RESTARTS, CompilerImport, Standby
from hvd_elastic.stores.location import LIBRARIES
from hvd_elastic.system.background_threads import error_words
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.elastic import fixed_world
from hvd_elastic.worker.adoption import adopt_protocol
from hvd_elastic.worker.adoption.adopted_environment import adopted_environment
from hvd_elastic.worker.standby import script_runner
from hvd_elastic.worker.standby.deferred_compiler import COMPILER, DeferredCompiler

PRELOADED: Final = ("torch", "horovod.torch")
"""Imported before the script runs."""
PRELOADED_OVER_TORCH: Final = ("torch", "torch.nn.parallel")
"""The same where torch.distributed is the engine, and Horovod may not be installed."""


class Channel:
    """The standby's end of its connection to the entry point."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._start = Start.of_this_process()

    def wait(self) -> None:
        """Report that the script is at `hvd.init()`, wait for a launcher's command, and become that command."""
        import_what_comes_next()
        sys.stdout.flush()
        sys.stderr.flush()
        with self._socket:
            self._socket.sendall(adopt_protocol.WAITING)
            request = adopt_protocol.receive(self._socket)
        if request is None:
            # The entry point is gone or does not need this process. Nothing has begun that would need an end.
            os._exit(0)
        become(request, self._start)


_NEXT: Final = (
    "hvd_elastic.trainer.state.elastic_state",
    "hvd_elastic.trainer.telemetry.figures_file",
    "hvd_elastic.trainer.telemetry.metrics_server",
)


def import_what_comes_next() -> None:
    """Import what a script with our API needs after `hvd.init()`, while the other workers would wait for this one.

    That is State, which takes a tenth of a second, what tells of the training, and the client of the object store if
    the job has one. A script may do without them, so an import that fails is the script's to report.
    """
    with contextlib.suppress(ImportError):
        for name in _NEXT:
            importlib.import_module(name)
        for name in LIBRARIES.get(os.environ.get(ENV_CHECKPOINT, "").partition(":")[0], ()):
            importlib.import_module(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the script finds as it starts."""

    environment: Mapping[str, str]
    directory: str | None

    @classmethod
    def of_this_process(cls) -> Self:
        return cls(environment=dict(os.environ), directory=_directory())


def become(request: adopt_protocol.AdoptRequest, start: Start) -> None:
    """Take over environment, working directory, stdin, stdout and stderr of a launcher's command.

    What the script has changed since `start` stays, but for what it could not know then: its place in the world.
    """
    command = request.read()
    for number, descriptor in enumerate(request.stdio):
        os.dup2(descriptor, number)
    request.close()
    for name, value in adopted_environment(start.environment, command.environment).items():
        before = start.environment.get(name)
        is_place = before is None and name.startswith("HOROVOD_")
        if is_place or os.environ.get(name) == before:
            os.environ[name] = value
    if _directory() != start.directory:
        return
    try:
        os.chdir(command.directory)
    except OSError as error:
        print(f"hvd-elastic: {command.directory}: {error.strerror}", file=sys.stderr)  # noqa: T201


def _directory() -> str | None:
    """None where it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program that the command line names. Never returns."""
    options = _options(arguments)
    if IS_TORCH:
        fixed_world.THIS_PROCESS.allow(functools.partial(begin_again, _directory()))
        if ENV_RESTARTS in os.environ:  # the launcher asks whether it lives, and it is about to import torch
            fixed_world.answer_launcher()
    _prepare(options)
    code = script_runner.run(options.target, options.arguments, is_module=options.module, neighbours=options.neighbours)
    script_runner.end(code)


def begin_again(directory: str | None) -> NoReturn:
    """Replace this process by one that runs its program from the first line, and waits for nobody's command."""
    at = sys.orig_argv.index("--")
    ours = [f"--mode={Standby.OFF}" if word.startswith("--mode=") else word for word in sys.orig_argv[1:at]]
    if directory is not None:
        os.chdir(directory)
    os.execv(sys.executable, [sys.executable, *ours, *sys.orig_argv[at:]])  # noqa: S606


def _prepare(options: argparse.Namespace) -> None:
    """Import ahead, and patch Horovod so that its first `init` waits."""
    if IS_TORCH:  # a script picks its GPU by it before it is in a world
        os.environ.setdefault("LOCAL_RANK", os.environ.get("HOROVOD_LOCAL_RANK", str(options.slot)))
        os.environ.setdefault("LOCAL_WORLD_SIZE", os.environ.get("HOROVOD_LOCAL_SIZE", str(options.slots)))
    if options.mode is Standby.OFF:
        # A launcher is already waiting, and the program may not use Horovod at all.
        if importlib.util.find_spec("horovod") is not None or IS_TORCH:
            try:
                _install(None)
                _defer_compiler()
            except ModuleNotFoundError:
                pass
            except ImportError as error:
                # The script's own import of torch, the second in this process, has another message.
                print(f"hvd-elastic: {error_words(error)}", file=sys.stderr, flush=True)  # noqa: T201
        return
    with _out_of_collections():
        for name in PRELOADED_OVER_TORCH if IS_TORCH else PRELOADED:
            importlib.import_module(name)
        if IS_TORCH or not _defer_compiler():
            # The other workers would wait for the first optimizer, which comes after `hvd.init()`; over torch for
            # DistributedDataParallel, whose constructor asks the compiler for its mode.
            importlib.import_module(COMPILER)
    alone = (options.slot, options.slots) if options.mode is Standby.SOLO else None
    _install(Channel(options.channel).wait, solo=alone)


def _defer_compiler() -> bool:
    """Let the compiler wait until it is used. False where it cannot: then the first optimizer imports it."""
    return os.environ.get(ENV_COMPILER) != CompilerImport.AHEAD and DeferredCompiler().install()


@contextlib.contextmanager
def _out_of_collections() -> Iterator[None]:
    """Keep what is made meanwhile out of Python's searches for unreachable objects, now and later.

    What is imported stays. torch makes some 300,000 objects, and a search of them takes a tenth of a second: one came
    before `hvd.init()`, and others come as training goes on, while all other ranks wait.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _install(wait: Callable[[], None] | None, *, solo: tuple[int, int] | None = None) -> None:
    from hvd_elastic.trainer.elastic import horovod_patches

    horovod_patches.install(wait, solo=solo)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hvd_elastic.worker.standby.standby")
    parser.add_argument("--mode", type=Standby, required=True)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--slot", type=int, default=0)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--module", action="store_true")
    parser.add_argument("--neighbours", action="store_true")
    parser.add_argument("target")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
