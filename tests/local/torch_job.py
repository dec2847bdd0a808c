"""A job of `hvd-elastic run --engine torch`, for tests."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.failing_threads import wait_for


class TorchJob:
    """`hvd-elastic run --engine torch` where whoever imports Horovod fails. It is gone after `close`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        (folder / "sitecustomize.py").write_text('import sys\nsys.modules["horovod"] = None\n')
        self._mark, self._log = str(folder), folder / "log"
        environment = os.environ | {
            "HVD_ELASTIC_TEST_MARK": self._mark,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(folder),
        }
        command = [sys.executable, "-m", "hvd_elastic.cli", "run", "--engine", "torch", *arguments]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def said(self) -> str:
        return self._log.read_text()

    def says(self, pattern: str) -> None:
        wait_for(lambda: re.search(pattern, self.said()) is not None or self._process.poll() is not None, 600)
        assert re.search(pattern, self.said()), self.said()

    def kill_newest(self) -> None:
        ours = [
            process
            for process in psutil.process_iter(["environ", "cmdline"])
            if (process.info["environ"] or {}).get("HVD_ELASTIC_TEST_MARK") == self._mark
            and any(word.endswith("standby.standby") for word in process.info["cmdline"] or ())
        ]
        max(ours, key=psutil.Process.create_time).kill()

    def ends(self) -> int:
        return self._process.wait(900)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
