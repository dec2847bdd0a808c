"""What becomes of the README's two commands in one release: a root of its own, a clone, and what they print."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed import debian_root
from testbed.debian_root import DebianRoot

PROJECT: Final = Path(__file__).resolve().parents[2]
SUITES: Final = {"bookworm": "Debian 12", "trixie": "Debian 13", "testing": "Debian testing"}
FIRST_PACKAGES: Final = ("ca-certificates", "git", "make", "python3")
"""What a person has who clones the project and types `make`."""
DIFFERING: Final = "distribution"
"""The mark of tests whose outcome depends on the Python, the compiler or the distribution."""
_KEPT_FOR_SECONDS: Final = 7 * 24 * 3600
"""A fresh root older than this is made anew: testing changes daily, the others with each point release."""
_LIMIT_SECONDS: Final = 90 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """One command in one release."""

    command: str
    exit_code: int
    seconds: float
    summary: str
    """Pytest's counts, or which compilers built Horovod; empty for a command that tells neither."""
    log: Path

    @property
    def passed(self) -> bool:
        """Whether the command says that all is well."""
        return self.exit_code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOutcome:
    """What became of all commands in one release."""

    suite: str
    python: str
    compiler: str
    commands: tuple[CommandOutcome, ...]

    @property
    def passed(self) -> bool:
        """Whether every command passed."""
        return all(command.passed for command in self.commands)


def try_release(
    suite: str, *, commands: tuple[str, ...], cache: Path, logs: Path, warm: bool, say: Callable[[str], None]
) -> ReleaseOutcome:
    """Run the commands one after the other in a fresh root with a clone of this checkout's last commit.

    Args:
        suite: Debian's name of the release.
        commands: Lines of shell, run in the clone.
        cache: Where roots are kept, and for `warm` what the commands cache in their home.
        logs: Where the output of each command goes.
        warm: Give the commands the caches of the last warm run: package archives, Horovod's wheel.
        say: Called with a line at each step.

    Raises:
        subprocess.CalledProcessError: the root or the clone could not be made.
        subprocess.TimeoutExpired: a command took longer than an hour and a half.

    """
    logs.mkdir(parents=True, exist_ok=True)
    root = DebianRoot(folder=cache / suite / "root")
    _copy_fresh(suite, cache / suite, root.folder, say=say)
    kept = cache / suite / "home-cache"
    if warm and kept.is_dir():
        kept.rename(root.folder / "root/.cache")
    _git("clone", "--quiet", "--no-hardlinks", str(PROJECT), str(root.folder / "root/hvd-elastic"))
    outcomes = tuple(_run(root, suite, command, logs=logs, say=say) for command in commands)
    outcome = ReleaseOutcome(
        suite=suite,
        python=root.read("hvd-elastic/.venv/bin/python -c 'import platform; print(platform.python_version())'"),
        compiler=root.read("g++ -dumpfullversion") or "none",
        commands=outcomes,
    )
    if warm and (left := root.folder / "root/.cache").is_dir():
        shutil.rmtree(kept, ignore_errors=True)
        left.rename(kept)
    shutil.rmtree(root.folder)
    return outcome


def _copy_fresh(suite: str, folder: Path, to: Path, *, say: Callable[[str], None]) -> None:
    fresh = folder / "fresh"
    folder.mkdir(parents=True, exist_ok=True)
    if fresh.exists() and time.time() - fresh.stat().st_ctime > _KEPT_FOR_SECONDS:
        shutil.rmtree(fresh)
    if not fresh.exists():
        say(f"{SUITES[suite]}: making a root by debootstrap")
        debian_root.make(fresh, suite, packages=FIRST_PACKAGES)
    shutil.rmtree(to, ignore_errors=True)
    subprocess.run(["cp", "-a", "--reflink=auto", str(fresh), str(to)], check=True)


def _run(root: DebianRoot, suite: str, command: str, *, logs: Path, say: Callable[[str], None]) -> CommandOutcome:
    log = logs / f"{suite}-{re.sub(r'[^a-z0-9]+', '-', command.lower()).strip('-')}.log"
    say(f"{SUITES[suite]}: {command} (output: {log})")
    before = time.monotonic()
    with log.open("w") as output:
        code = root.run(f"cd hvd-elastic && {command}", output=output, timeout_seconds=_LIMIT_SECONDS)
    outcome = CommandOutcome(
        command=command,
        exit_code=code,
        seconds=time.monotonic() - before,
        summary=summary_of(log.read_text(errors="replace")),
        log=log,
    )
    became = "passes" if outcome.passed else f"exit code {code}"
    say(f"{SUITES[suite]}: {command}: {became} in {outcome.seconds / 60:.1f} min {outcome.summary}")
    return outcome


def summary_of(output: str) -> str:
    """Return pytest's counts, such as `12 passed, 1 skipped`, one for each run of it, or the compilers that built."""
    counts = re.findall(r"^=* ?(\d+ (?:passed|failed|error|skipped)[^=\n]*?) in [\d.]+s", output, re.MULTILINE)
    return " + ".join(counts or re.findall(r"^compiles with (.+)$", output, re.MULTILINE))


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, timeout=300)
