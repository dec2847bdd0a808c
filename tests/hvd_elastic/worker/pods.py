"""Real worker pods without a cluster: the entry point in its own process, and launchers' commands that it adopts.

The script's `torch` and `horovod` are a few lines here, so that a pod starts in a fraction of a second; a yard that is
made with `real=True` has the real ones.
"""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from hvd_elastic.horovod.patch_set import read_patches
from hvd_elastic.mpijob.contract import (
    ADOPT_FILE,
    ENV_GRACE_SECONDS,
    ENV_READY_ADDRESS,
    ENV_RUN_DIR,
    ENV_SLOTS,
    ENV_STANDBY,
    READY_PORT,
)
from hvd_elastic.system.job_key import sign
from hvd_elastic.trainer.collectives.collective_calls import NAMED

DEADLINE_SECONDS: Final = 240.0
"""Of a condition that comes within a second or, for real torch, ten; a machine may be busy with twenty others."""

ROOT: Final = Path(__file__).parents[3]
"""Of the repository: the code under test comes from here, whatever is installed."""

MARK: Final = "HVD_ELASTIC_TEST_POD"

FAKE_MODULES: Final = {
    "torch/__init__.py": "",
    "torch/_dynamo.py": "",
    "torch/utils/__init__.py": "",
    "torch/utils/data.py": "class DistributedSampler:\n    def __iter__(self):\n        return iter(())\n",
    "horovod/__init__.py": "",
    "horovod/common/__init__.py": "",
    "horovod/common/hvd_elastic_patches.py": f"NAMES = {tuple(patch.name for patch in read_patches())}",
    "horovod/torch/__init__.py": """
from horovod.torch import elastic
_up = False
def init(*args, **kwargs):
    global _up
    _up = True
def shutdown():
    global _up
    _up = False
def is_initialized():
    return _up
def rank():
    return 0
def size():
    return 1
local_rank, local_size = rank, size
Adasum = 2
def mpi_enabled():
    return False
""",
    "horovod/torch/mpi_ops.py": """
from horovod.torch import size
class mpi_lib:
    pass
for _name in ("wait_and_clear", "poll", "join", "barrier", "reset"):
    setattr(mpi_lib, f"horovod_torch_{_name}", lambda *_: 0)
_handle_map = {}
"""
    + "".join(f"def {name}(name=None, process_set=None):\n    return 0\n" for name in NAMED),
    "horovod/torch/functions.py": "def broadcast_async_(tensor, root_rank, name=None):\n    return 0\n",
    "horovod/torch/optimizer.py": """
class _DistributedOptimizer:
    def __init__(self, params):
        pass
class _DistributedAdasumOptimizer(_DistributedOptimizer):
    pass
""",
    "horovod/torch/elastic/__init__.py": "def run(func):\n    return func\n",
}

HOST: Final = """
import sys
from hvd_elastic.system.backoff import Backoff
from hvd_elastic.worker import entrypoint, sshd, worker_slot
worker_slot.END_SECONDS = {end_seconds}
sshd.BACKOFF = Backoff(first_seconds=0.01, most_seconds=10.0)
sshd.COMMAND = {sshd!r}
from hvd_elastic.cli import main
sys.argv[0] = "hvd-elastic"
main()
"""
"""`hvd-elastic` with shorter times."""

_numbers = itertools.count(os.getpid() * 16 % 4_000_000)
_Value = TypeVar("_Value")


def fresh_address() -> str:
    """One of 127.0.0.0/8 that no other test uses: processes start their numbers apart."""
    number = next(_numbers)
    return f"127.{64 + number // 62_500 % 64}.{number // 250 % 250}.{1 + number % 250}"


def eventually(
    look: Callable[[], _Value | None], what: str | Callable[[], str], seconds: float = DEADLINE_SECONDS
) -> _Value:
    """Return the first true value of `look`; fail when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = look()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what if isinstance(what, str) else what()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """READY_PORT's line."""

    generation: int
    state: str
    step: int
    age: int


@dataclass(slots=True, kw_only=True)
class Pod:
    """A running entry point."""

    process: subprocess.Popen[bytes]
    run_dir: Path
    address: str
    log: Path
    environment: dict[str, str]
    command: tuple[str, ...]
    clients: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def ask(self, request: bytes = b"") -> Answer | None:
        """Ask READY_PORT; None where it is closed."""
        try:
            with socket.create_connection((self.address, READY_PORT), timeout=5) as connection:
                connection.sendall(request)
                line = connection.makefile().readline()
        except OSError:
            return None
        if not line:
            return None
        name, version, generation, state, step, age = line.split()
        assert (name, version) == ("hvd-elastic", "1")
        return Answer(generation=int(generation), state=state, step=int(step), age=int(age))

    def request(self, verb: str, key: str, reason: str = "") -> None:
        """Ask READY_PORT for something, signed with a key as from `job_key.request_key`."""
        with socket.create_connection((self.address, READY_PORT), timeout=5) as connection:
            answers = connection.makefile()
            connection.sendall(b"challenge\n")
            nonce = [answers.readline() for _ in range(2)][1].strip()
            connection.sendall(f"{verb} {sign(key, nonce, f'{verb} {reason}')} {reason}\n".encode())
            assert answers.read() == ""  # it has read that

    def ready(self, *, generation: int = 1, state: str = "waiting") -> Answer:
        """Wait until READY_PORT answers with this generation and state."""

        def look() -> Answer | None:
            assert self.process.poll() is None, f"the pod ended with {self.process.returncode}; log:\n{self.log_text}"
            answer = self.ask()
            return answer if answer and (answer.generation, answer.state) == (generation, state) else None

        return eventually(look, lambda: f"{state}, generation {generation}; now {self.ask()}; log:\n{self.log_text}")

    def adopt(self, *argv: str, env: Mapping[str, str] | None = None, **options: object) -> subprocess.Popen[bytes]:
        """Run RUN_DIR/adopt as a launcher would; the pod's own command where `argv` is empty."""
        command = [str(self.run_dir / ADOPT_FILE), *(argv or self.command)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
        environment = {"PATH": self.environment["PATH"], MARK: self.environment[MARK], **(env or {})}
        client = subprocess.Popen(command, env=environment, **options)  # type: ignore[call-overload]
        self.clients.append(client)
        return client  # type: ignore[no-any-return]

    def run(self, *argv: str, env: Mapping[str, str] | None = None, **options: object) -> tuple[int, str]:
        """Adopt, wait for the end, and return the exit code and the output."""
        client = self.adopt(*argv, env=env, **options)
        output, _ = client.communicate(timeout=DEADLINE_SECONDS)
        return client.returncode, (output or b"").decode()

    @property
    def log_text(self) -> str:
        """The pod's log so far."""
        return self.log.read_text(errors="replace")

    def processes(self) -> dict[int, str]:
        """Every process that came from this pod, but the entry point and the clients: id to command line."""
        own = {self.process.pid, *(client.pid for client in self.clients)}
        return {pid: line for pid, line in marked(self.environment[MARK]).items() if pid not in own}

    def descriptors(self) -> int:
        """Open descriptors of the entry point."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def end(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self.process.wait(DEADLINE_SECONDS)


def marked(mark: str) -> dict[int, str]:
    """Processes with `mark` in their environment that are not zombies: id to command line."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if line:
                    found[int(entry.name)] = line
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Yard:
    """Where pods are started: a folder with the script and the fake modules."""

    folder: Path
    real: bool = False
    """Real torch and Horovod."""

    def write(self, script: str, name: str = "train.py") -> Path:
        """Write the training script."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script)
        return path

    @contextlib.contextmanager
    def pod(
        self,
        *command: str,
        slots: int = 1,
        standby: str = "init",
        grace: float = 20.0,
        options: Sequence[str] = ("--no-sshd",),
        end_seconds: float = 5.0,
        sshd: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
    ) -> Iterator[Pod]:
        """Start a pod with `command` (default: `python train.py`), and leave nothing of it behind."""
        command = command or ("python", "train.py")
        environment = self.environment(slots=slots, standby=standby, grace=grace) | dict(env or {})
        host = HOST.format(end_seconds=end_seconds, sshd=tuple(sshd))
        argv = [*wrapper, sys.executable, "-P", "-c", host, "worker", *options, "--", *command]
        log = self.folder / f"pod-{environment[ENV_READY_ADDRESS]}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv, env=environment, cwd=self.folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        pod = Pod(
            process=process,
            run_dir=Path(environment[ENV_RUN_DIR]),
            address=environment[ENV_READY_ADDRESS],
            log=log,
            environment=environment,
            command=tuple(command),
        )
        try:
            yield pod
        finally:
            _end(pod)

    def environment(self, *, slots: int, standby: str, grace: float) -> dict[str, str]:
        """The pod's environment: nothing of this process' own but what Python needs to start."""
        address = fresh_address()
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "HOSTNAME": "pod-under-test",
            "OMP_NUM_THREADS": "1",
            ENV_RUN_DIR: str(self.folder / f"run-{address}"),
            ENV_READY_ADDRESS: address,
            ENV_SLOTS: str(slots),
            ENV_STANDBY: standby,
            ENV_GRACE_SECONDS: str(grace),
            MARK: address,
        }
        return environment | {"PYTHONPATH": self.python_path}

    @property
    def python_path(self) -> str:
        """PYTHONPATH of the pod's processes."""
        return str(ROOT) if self.real else f"{self.folder / 'fakes'}:{ROOT}"


def make_yard(folder: Path, *, real: bool = False) -> Yard:
    """Prepare `folder`."""
    for name, text in ({} if real else FAKE_MODULES).items():
        path = folder / "fakes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Yard(folder=folder, real=real)


def _end(pod: Pod) -> None:
    for number in (signal.SIGTERM, signal.SIGTERM):
        if pod.process.poll() is None:
            pod.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                pod.process.wait(1)
    pod.process.kill()
    pod.process.wait()
    for client in pod.clients:
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.wait(5)
        client.kill()
        client.wait()
        if client.stdout is not None:
            client.stdout.close()
    eventually(lambda: not pod.processes(), lambda: f"no process left behind, but: {pod.processes()}", 60)
