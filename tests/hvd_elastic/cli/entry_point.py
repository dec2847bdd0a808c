"""The command line's own entry point, called in this process."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hvd_elastic import cli


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command has left."""

    code: int
    out: str
    err: str


Tool = Callable[..., Ran]


def tool(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *verb: str) -> Tool:
    """Return a function that calls `hvd-elastic`, or one verb of it, with its arguments."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr("sys.argv", ["hvd-elastic", *verb, *arguments])
        code: object = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        return Ran(code=int(str(code or 0)), out=captured.out, err=captured.err)

    return run
