"""A whole file system is synced."""

from pathlib import Path

import pytest

from hvd_elastic.system.file_system_sync import sync_file_system


def test_a_folder_is_enough(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    sync_file_system(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_file_system(tmp_path / "none")
