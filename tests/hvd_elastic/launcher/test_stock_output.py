import contextlib
import os
from pathlib import Path

import pytest

from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST
from hvd_elastic.launcher.horovodrun.stock_output import StockOutput
from hvd_elastic.mpijob.contract import MISTAKE_LINE

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


def test_the_worker_that_ended_the_job_has_the_last_word() -> None:
    others = "[0]<stderr>:horovod.common.exceptions.HorovodInternalError: lost\nProcess 0 exit with status code 143.\n"
    output = written(f"[1]<stdout>:[1]<stderr>:no\n{TRACEBACK}[2]<stderr>:\n{others}".encode())
    assert output.worker_code() == 3
    assert output.worker_sentence == "ValueError: my own mistake"
    nobody = written(b"[0]<stderr>:a warning\nhorovodrun: error\n")
    assert (nobody.worker_code(), nobody.worker_sentence) == (None, "")


def test_horovodrun_s_own_error_is_kept() -> None:
    output = written(b"horovodrun: error: unrecognized arguments\n")
    assert output.worker_code() is None
    assert b"unrecognized arguments" in output.last_words


def test_the_reset_limit_is_told_by_horovodrun_alone() -> None:
    said = b"Horovod was shutdown because number of resets during elastic job exceeded limit: 1"
    own = written(b"RuntimeError: " + said + b"\n")
    assert own.worker_code() is None
    assert own.has_reached_reset_limit
    of_a_worker = written(b"[0]<stderr>:" + said + b"\n" + TRACEBACK.encode())
    assert of_a_worker.worker_code() == 3
    assert not of_a_worker.has_reached_reset_limit


def test_a_worker_whose_script_is_wrong_is_heard_while_the_others_train() -> None:
    output = written(
        f"[1]<stderr>:hvd-elastic: rank 1 has left\n[0]<stdout>:step 7\n[1]<stderr>:{MISTAKE_LINE}\n".encode()
    )
    assert output.worker_code() is None
    assert output.mistake == "rank 1 has left"


def test_other_words_of_ours_are_no_mistake() -> None:
    output = written(b"[1]<stderr>:hvd-elastic: training goes on with 2 workers\n[0]<stdout>:step 7\n")
    assert output.worker_code() is None
    assert output.mistake is None


@pytest.mark.parametrize("unwritable", ["stdout", "stderr"])
def test_last_words_that_cannot_be_said_are_no_error(unwritable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr(f"sys.{unwritable}", full)
        output = written(b"horovodrun: error\n")
        assert output.worker_code() is None
        output.show_last_words()


def test_a_progress_bar_is_shown_before_it_ends(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output = StockOutput()
    os.write(output.writer, b"[0]<stderr>:\r[0]<stderr>: 10%")
    shown = b""
    while not shown:
        shown = capfdbinary.readouterr()[1]
    assert shown == b"[0]<stderr>: 10%\n"
    os.write(output.writer, b"\r[0]<stderr>:100%\n")
    output.close_writer()
    output.worker_code()
    assert capfdbinary.readouterr()[1] == b"[0]<stderr>:100%\n"


def test_an_ssh_error_is_no_code_of_a_worker() -> None:
    assert written(TRACEBACK.replace("code: 3", "code: 255").encode()).worker_code() == CONNECTION_LOST


def test_a_reader_that_is_gone_does_not_stop_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115 - closing it fails, too
    monkeypatch.setattr("sys.stdout", full)
    output = written(b"[0]<stdout>:line\n" * 100_000 + TRACEBACK.encode())
    assert output.worker_code() == 3
    with contextlib.suppress(OSError):
        full.close()
