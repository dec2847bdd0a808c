"""Errors of staging."""

from hvd_elastic.mpijob.contract import Exit, HvdElasticError


class StageError(HvdElasticError):
    """The data set could not be staged. What was copied stays, and the next attempt goes on from there."""


class UnusableSourceError(StageError):
    """The source's keys cannot be files of a folder. `str()` names every one of them, one per line."""

    exit_code = Exit.BAD_INPUT


class UnusableWantedError(StageError):
    """The file that says what training waits for does not say it."""

    exit_code = Exit.BAD_INPUT


class DigestError(StageError):
    """What arrived differs from what the store says of the object's bytes."""
