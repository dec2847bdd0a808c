"""What ran on fresh releases, as the table in docs/tested-versions.md."""

import re
from collections.abc import Iterable
from typing import Final

from tests.distributions.first_commands import SUITES, CommandOutcome, ReleaseOutcome

BEGIN: Final = "<!-- written by `make test-distributions WRITE=yes` -->"
END: Final = "<!-- end -->"


def rendered(outcomes: Iterable[ReleaseOutcome], *, ran: str) -> str:
    """Return the table with the line above it, which says when what `ran`."""
    outcomes = list(outcomes)
    commands = [command.command for command in outcomes[0].commands]
    lines = [
        ran,
        "",
        f"| release | Python | GCC | {' | '.join(f'`{command}`' for command in commands)} |",
        "| --- | --- | --- | " + " | ".join("---" for _ in commands) + " |",
    ]
    for outcome in outcomes:
        cells = [SUITES[outcome.suite], outcome.python, outcome.compiler, *map(_cell, outcome.commands)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def written_into(page: str, table: str) -> str:
    """Return the page with this table in its place. Raises ValueError if the page has no place for it."""
    new, count = re.subn(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n\n{table}\n\n{END}", page, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"the page has {count} places between {BEGIN!r} and {END!r}, and one is needed")
    return new


def _cell(outcome: CommandOutcome) -> str:
    words = "passes" if outcome.passed else f"**exit code {outcome.exit_code}**"
    return f"{words} in {outcome.seconds / 60:.1f} min{f': {outcome.summary}' if outcome.summary else ''}"
