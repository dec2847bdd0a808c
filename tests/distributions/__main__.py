"""`python -m tests.distributions`: the README's two commands on fresh Debian releases (root, Linux)."""

import argparse
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from testbed.kube import folders
from tests.distributions import outcome_table
from tests.distributions.first_commands import DIFFERING, PROJECT, SUITES, ReleaseOutcome, try_release

_WHOLE: Final = ("make demo", "make test")
_PART: Final = ("make demo", "make setup", f".venv/bin/pytest tests -m '{DIFFERING} and not cluster' -n 2")
_TORCH: Final = ("make demo ENGINE=torch", "sh tools/see_it_survive.sh .venv")
_COMPILERS: Final = ("make test-compilers",)
_PAGE: Final = PROJECT / "docs" / "tested-versions.md"


def main(arguments: list[str] | None = None) -> int:
    """Try each release; return 1 if a command failed in one."""
    parser = argparse.ArgumentParser(prog="python -m tests.distributions", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; default: all")
    instead_of_both = parser.add_mutually_exclusive_group()
    parser.set_defaults(commands=_WHOLE)
    for option, instead in (("--part", _PART), ("--torch", _TORCH), ("--compilers", _COMPILERS)):
        instead_of_both.add_argument(
            option, dest="commands", action="store_const", const=instead, help=f"in place of both: {'; '.join(instead)}"
        )
    parser.add_argument("--python", metavar="NAME", help="such as python3.15: that of the release's Pythons")
    parser.add_argument("--warm", action="store_true", help="with the caches that the last such run left")
    parser.add_argument("--write", action="store_true", help="put the table into docs/tested-versions.md")
    asked = parser.parse_args(arguments)
    if unknown := [suite for suite in asked.suites if suite not in SUITES]:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(SUITES)}")
    if os.geteuid() != 0 or sys.platform != "linux":
        parser.error("a release of its own in a folder needs root, and Linux")
    _warn_of_changes()
    chosen = f" PYTHON={asked.python}" if asked.python else ""
    commands = tuple(f"{command}{chosen}" if command.startswith("make ") else command for command in asked.commands)
    try:
        outcomes = [_try(suite, commands=commands, warm=asked.warm) for suite in asked.suites or SUITES]
    except subprocess.CalledProcessError as error:
        _say(f"{error}:\n{(error.output or '')[-3000:]}")
        return 2
    table = outcome_table.rendered(outcomes, ran=_what_ran(warm=asked.warm))
    print(table)
    if asked.write:
        _PAGE.write_text(outcome_table.written_into(_PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _try(suite: str, *, commands: tuple[str, ...], warm: bool) -> ReleaseOutcome:
    outcome = try_release(
        suite,
        commands=commands,
        cache=folders.cache() / "distributions",
        logs=PROJECT / "out" / "distributions",
        warm=warm,
        say=_say,
    )
    for command in outcome.commands:
        if not command.passed:
            _say(f"{command.command}: the end of {command.log}:\n{_tail(command.log)}")
    return outcome


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-60:])


def _what_ran(*, warm: bool) -> str:
    commit = _git("rev-parse", "--short", "HEAD")
    cores = len(os.sched_getaffinity(0))
    cached = "with the packages and the Horovod of an earlier run" if warm else "nothing cached"
    return f"Commit {commit}, {datetime.now(UTC).date()}, {cores} cores, {cached}; `make demo` includes set-up:"


def _warn_of_changes() -> None:
    if changed := _git("status", "--porcelain", "--untracked-files=no"):
        _say(f"not committed, so not tried:\n{changed}")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(PROJECT), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
