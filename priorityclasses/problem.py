"""One thing that is wrong with what a user wrote: a value, never raised here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Says where, what, and the way out. A check returns all of them at once."""

    path: str
    """Where the value stands, as the user wrote it: `workers.min`, `--workers`, `classes[2].value`."""
    value: object
    what: str
    """What is wrong with the value, without repeating it."""
    way_out: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.value!r}: {self.what}"
        return f"{text}: {self.way_out}" if self.way_out else text
