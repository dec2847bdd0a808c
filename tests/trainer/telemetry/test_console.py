import logging
from collections.abc import Iterator

import pytest

from hvd_elastic.trainer.telemetry.console import say


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("test-console")
    logger.propagate = False
    yield logger
    logger.handlers[:] = []
    logger.setLevel(logging.NOTSET)


def test_a_script_that_leaves_logging_alone_gets_a_line(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    say(logger, "beginning anew")
    assert capsys.readouterr().err == "hvd-elastic: beginning anew\n"


def test_a_script_that_logs_gets_a_record_and_no_line(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    say(logger, "100% of it")
    assert heard == ["100% of it"]
    assert capsys.readouterr().err == ""
