"""One thing that is wrong with what a user wrote. It is a plain value, not an exception."""

from dataclasses import dataclass

from hvd_elastic.system.plain_words import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Says where the problem is, what it is, and the way out. A check returns all problems at once."""

    path: str
    """The name of the value as the user wrote it: `workers.min`, `--workers`, `classes[2].value`."""
    value: object
    """The wrong value. The message repeats neither None, for one that is not there, nor `...`, for a whole section."""
    what: str
    """What is wrong with the value, without repeating it."""
    way_out: str = ""

    def __str__(self) -> str:
        value = [] if self.value in (None, ...) else [repr(self.value)]
        way_out = [self.way_out] if self.way_out else []
        return printable(": ".join([self.path, *value, self.what, *way_out]))
