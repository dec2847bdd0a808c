"""Copies a data set from a bucket into a shared folder before training, once, and says when it is whole.

    source ──list──► SourceManifest ──plan──► CopyPlan ──copy──► files, records ──► _SUCCESS ──rearrange──► _REARRANGED
                                                                                       └────────► gate ◄────────┘

The plan is pure. What was copied is recorded as it is done, of large objects each range, so that a copier which was
killed goes on where it was.
"""

from hvd_elastic.staging.gate import WantedData, whats_missing
from hvd_elastic.staging.progress_line import StageProgress
from hvd_elastic.staging.stage import Staged, stage
from hvd_elastic.staging.stage_errors import StageError

__all__ = ["StageError", "StageProgress", "Staged", "WantedData", "stage", "whats_missing"]
