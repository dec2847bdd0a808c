"""Whether training may begin: what a staged folder still lacks, in words."""

from collections.abc import Sequence
from pathlib import Path

from hvd_elastic.staging.source_manifest import REARRANGED_FILE, SUCCESS_FILE
from hvd_elastic.staging.stage_marker import read_rearranged, read_success


def whats_missing(folder: Path, *, source: str, rearrange: Sequence[str]) -> str | None:
    """What keeps training from the data. None: it may begin. Raises OSError.

    Args:
        folder: the staged folder.
        source: URL of what should be in it.
        rearrange: the command that should have run on it; empty if there is none.
    """
    marker = read_success(folder)
    if marker is None:
        return f"{source} is not staged to {folder} yet: there is no {SUCCESS_FILE} of a whole copy"
    if marker.source.rstrip("/") != source.rstrip("/"):
        return f"{folder} holds {marker.source}, and this job wants {source}"
    rearranged = read_rearranged(folder)
    if rearrange and (rearranged is None or rearranged.digest != marker.digest):
        return f"{source} is staged to {folder}, and the rearrange command has not ended: there is no {REARRANGED_FILE}"
    if rearrange and rearranged and list(rearranged.command) != list(rearrange):
        return f"{folder} was rearranged by another command than this job's: {' '.join(rearranged.command)}"
    return None
