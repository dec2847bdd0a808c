from pathlib import Path

from hvd_elastic.discovery.expected_workers import ExpectedWorker, read_expected, write_expected
from hvd_elastic.mpijob.contract import EXPECTED_FILE


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_expected(tmp_path, {"uid-a": "10.0.0.1", "uid-b": "10.0.0.2"})
    workers = (ExpectedWorker(uid="uid-a", address="10.0.0.1"), ExpectedWorker(uid="uid-b", address="10.0.0.2"))
    assert read_expected(tmp_path) == workers
    write_expected(tmp_path, {})
    assert read_expected(tmp_path) == ()


def test_without_the_file_nobody_is_expected(tmp_path: Path) -> None:
    assert read_expected(tmp_path) == ()


def test_what_is_no_worker_is_left_out(tmp_path: Path) -> None:
    (tmp_path / EXPECTED_FILE).write_bytes(
        b"uid-a 10.0.0.1\n-oProxyCommand=x y z\n\xff \xff\nuid-b 10.0.0.2; rm\nuid-c\n"
    )
    assert read_expected(tmp_path) == (ExpectedWorker(uid="uid-a", address="10.0.0.1"),)
