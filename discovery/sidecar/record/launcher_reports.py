"""What training processes have told the launcher beside this: files in RUN_DIR (`contract.FIGURES_SCOPE`)."""

import json
from pathlib import Path

from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.mpijob.contract import FIGURES_MAX_BYTES, LAST_FIGURES_FILE, REGISTERED_FILE


def has_registered(run_dir: Path) -> bool:
    """Whether a process of a script that tells no steps has come into `elastic.run`."""
    return (run_dir / REGISTERED_FILE).exists()


def last_figures(run_dir: Path) -> TrainingFigures | None:
    """What rank 0 told when training had ended; None: nothing, or nothing of that form."""
    try:
        with (run_dir / LAST_FIGURES_FILE).open("rb") as file:
            text = file.read(FIGURES_MAX_BYTES + 1)
        return TrainingFigures.from_json(json.loads(text)) if len(text) <= FIGURES_MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
