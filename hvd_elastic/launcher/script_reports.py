"""What training processes tell the launcher and the sidecar is to know: files in RUN_DIR (`contract.FIGURES_SCOPE`)."""

import logging
from pathlib import Path

from hvd_elastic.mpijob.contract import (
    FIGURES_EXPECTED_KEY,
    FIGURES_MAX_BYTES,
    LAST_FIGURES_FILE,
    LAST_FIGURES_KEY,
    REGISTERED_FILE,
)
from hvd_elastic.system.atomic_file import replace_file

logger = logging.getLogger(__name__)


class ScriptReports:
    """Writes them before it returns, so that an answer to a process promises them. Any thread may call it."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._tells_steps = False

    def take(self, key: str, value: bytes) -> None:
        """A value of FIGURES_SCOPE. What is too long, or has another key, is dropped."""
        if key == FIGURES_EXPECTED_KEY:
            self._tells_steps = True
        elif key == LAST_FIGURES_KEY and len(value) <= FIGURES_MAX_BYTES:
            self._write(LAST_FIGURES_FILE, value)

    def registered(self) -> None:
        """A process has registered."""
        if not self._tells_steps and not (self._run_dir / REGISTERED_FILE).exists():
            self._write(REGISTERED_FILE, b"")

    def _write(self, name: str, content: bytes) -> None:
        try:
            replace_file(self._run_dir / name, content)
        except OSError as error:
            logger.warning("the sidecar does not hear what training tells: %s", error)
