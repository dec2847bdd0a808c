"""Whether a job has begun before, however many launchers it has had.

A job waits for its start workers once in its life: with fewer of them a first world would be resized at once. A
launcher that comes later has no such reason to wait, and begins with min workers. No launcher's pod survives its
launcher, so the MPIJob itself keeps the fact, as an annotation. The sidecar writes it when it first sees a worker
train, and tells its launcher by BEGUN_FILE, which is there before the first list.
"""

from pathlib import Path

from hvd_elastic.mpijob.contract import BEGUN_FILE


def has_begun(run_dir: Path) -> bool:
    """Whether a launcher of this job has started training processes before."""
    return (run_dir / BEGUN_FILE).exists()


def mark_begun(run_dir: Path) -> None:
    """Tell the launcher that shares `run_dir`, and whatever runs in its place later. Raises OSError."""
    (run_dir / BEGUN_FILE).touch()
