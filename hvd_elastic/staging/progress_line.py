"""How far a staging is, as one line of its log, which people read and `status` finds again.

The log is the copier's way to be heard that takes no right at all: its pod has no token, and whoever asks needs
`pods/log`, which `hvd-elastic logs` needs anyway. An annotation or a ConfigMap would take a token and the right to
patch it, in a pod that runs a user's `rearrange` command.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(
    r"(?:^|: )(?P<objects>\d+) of (?P<of_objects>\d+) objects, [\d.]+ of [\d.]+ GiB "
    r"\((?P<size_bytes>\d+) of (?P<of_bytes>\d+) bytes\)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProgress:
    """How far a staging is. What was there already counts as done."""

    objects: int
    of_objects: int
    size_bytes: int
    of_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether everything is copied. The `rearrange` command may still run."""
        return (self.objects, self.size_bytes) == (self.of_objects, self.of_bytes)

    @property
    def part(self) -> float:
        """From 0 to 1, by bytes."""
        return self.size_bytes / self.of_bytes if self.of_bytes else float(self.is_whole)


def progress_words(progress: StageProgress) -> str:
    """`12 of 90 objects, 1.20 of 9.00 GiB (1288490188 of 9663676416 bytes)`."""
    gib = f"{_gib(progress.size_bytes)} of {_gib(progress.of_bytes)} GiB"
    exact = f"{progress.size_bytes} of {progress.of_bytes} bytes"
    return f"{progress.objects} of {progress.of_objects} objects, {gib} ({exact})"


def last_progress(log: Iterable[str]) -> StageProgress | None:
    """The last progress that a log tells. None: it tells none, or not in these lines."""
    found = None
    for line in log:
        for match in _LINE.finditer(line):
            found = StageProgress(**{name: int(number) for name, number in match.groupdict().items()})
    return found


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.2f}"
