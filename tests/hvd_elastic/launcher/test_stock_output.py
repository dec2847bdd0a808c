import contextlib
import os
from pathlib import Path

import pytest

from hvd_elastic.launcher.stock_output import StockOutput

TRACEBACK = """\
[1]<stderr>:Traceback (most recent call last):
[1]<stderr>:ValueError: my own mistake
Process 1 exit with status code 3.
Traceback (most recent call last):
  File "/usr/bin/horovodrun", line 8, in <module>
RuntimeError: Horovod detected that one or more processes exited with non-zero status
Process name: 127.0.0.1[0]
Exit code: 3

"""


def written(data: bytes) -> StockOutput:
    """What horovodrun wrote before it ended."""
    output = StockOutput()
    os.write(output.writer, data)
    output.close_writer()
    return output


def test_the_script_s_code_and_its_own_lines_come_out_of_the_wall(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output = written(b"[0]<stdout>:step 1\n" + TRACEBACK.encode())
    assert output.worker_code() == 3
    out, err = capfdbinary.readouterr()
    assert out == b"[0]<stdout>:step 1\n"
    assert err.splitlines()[-1] == b"[1]<stderr>:ValueError: my own mistake"
    assert b"horovodrun" not in err


def test_horovodrun_s_own_error_is_kept() -> None:
    output = written(b"horovodrun: error: unrecognized arguments\n")
    assert output.worker_code() is None
    assert "unrecognized arguments" in output.last_words


def test_a_reader_that_is_gone_does_not_stop_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115 - closing it fails, too
    monkeypatch.setattr("sys.stdout", full)
    output = written(b"[0]<stdout>:line\n" * 100_000 + TRACEBACK.encode())
    assert output.worker_code() == 3
    with contextlib.suppress(OSError):
        full.close()
