"""The error that carries every problem of an input at once."""

from collections.abc import Iterable

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.priorityclasses.problem import Problem


class InvalidInputError(HvdElasticError):
    """What a user wrote cannot be used. Nothing was written and nothing was started.

    `problems` holds all problems that were found. `str()` has one line for each.
    """

    exit_code = Exit.BAD_INPUT

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
