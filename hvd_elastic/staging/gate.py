"""Whether training may begin: what a staged folder still lacks, in words."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hvd_elastic.staging.source_manifest import REARRANGED_FILE, SUCCESS_FILE
from hvd_elastic.staging.stage_errors import UnusableWantedError
from hvd_elastic.staging.stage_marker import read_rearranged, read_success


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedData:
    """The data set that training waits for."""

    source: str
    """URL of what should be in the folder."""
    into: Path
    rearrange: Sequence[str] = ()
    """The command that should have run on it; empty: none."""

    @classmethod
    def read(cls, path: Path) -> "WantedData":
        """Read a file as `hvd_elastic.mpijob.contract.STAGE_KEY` describes it. Raises UnusableWantedError, OSError."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return cls(source=found["source"], into=Path(found["into"]), rearrange=tuple(found["rearrange"]))
        except (ValueError, TypeError, KeyError) as error:
            way_out = 'it must hold {"source": URL, "into": FOLDER, "rearrange": [WORD, ...]}: submit the job again'
            raise UnusableWantedError(f"{path}: {type(error).__name__}: {error}; {way_out}") from error


def whats_missing(wanted: WantedData) -> str | None:
    """What keeps training from the data. None: it may begin. Raises OSError."""
    source, folder, rearrange = wanted.source, wanted.into, list(wanted.rearrange)
    marker = read_success(folder)
    if marker is None:
        return f"{source} is not staged to {folder} yet: there is no {SUCCESS_FILE} of a whole copy"
    if marker.source.rstrip("/") != source.rstrip("/"):
        return f"{folder} holds {marker.source}, and this job wants {source}"
    rearranged = read_rearranged(folder)
    if rearrange and (rearranged is None or rearranged.digest != marker.digest):
        return f"{source} is staged to {folder}, and the rearrange command has not ended: there is no {REARRANGED_FILE}"
    if rearrange and rearranged and list(rearranged.command) != rearrange:
        return f"{folder} was rearranged by another command than this job's: {' '.join(rearranged.command)}"
    return None
