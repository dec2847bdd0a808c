import os

import pytest

from hvd_elastic.local.stock_output import stock_output

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


def test_the_script_s_code_and_its_own_lines_come_out_of_the_wall(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with stock_output() as output:
        os.write(output.descriptor, b"[0]<stdout>:step 1\n" + TRACEBACK.encode())
    code = output.exit_code(1)

    out, err = capfdbinary.readouterr()
    assert code == 3
    assert out == b"[0]<stdout>:step 1\n"
    assert err.splitlines()[-1] == b"[1]<stderr>:ValueError: my own mistake"
    assert b"horovodrun" not in err


def test_horovodrun_s_own_error_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with stock_output() as output:
        os.write(output.descriptor, b"horovodrun: error: unrecognized arguments\n")

    assert output.exit_code(2) == 2
    assert "unrecognized arguments" in capfd.readouterr().err
