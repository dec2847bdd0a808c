"""Copies a data set from a bucket into a shared folder before training, once, and says when it is whole.

    source ──list──► SourceManifest ──plan──► CopyPlan ──copy──► files, records ──► _SUCCESS ──rearrange──► _REARRANGED
                                                                                       └────────► gate ◄────────┘

The plan is pure. What was copied is recorded as it is done, of large objects each range, so that a copier which was
killed goes on where it was.

Where to change what:

- which objects of a staged data set are copied again: `copy_plan.py`; how they are compared:
  `hvd_elastic/stores/stored_digest.py`; how they are listed and read: `hvd_elastic/stores/data_set/object_source.py`;
  what is kept of a large object that was not whole: `partial_file.py`; how far it says that it is:
  `progress_line.py`, which `hvd_elastic/client/report/stage_status.py` reads; what keeps training back: `gate.py`;
  the Job and the gate's container: `mpijob/manifests/supporting/staging.py`; what a changed `stage` does to a job
  that was submitted: `hvd_elastic/client/operations/stage_change.py`.
"""

from hvd_elastic.staging.gate import WantedData, whats_missing
from hvd_elastic.staging.progress_line import StageProgress
from hvd_elastic.staging.stage import Staged, stage
from hvd_elastic.staging.stage_errors import StageError

__all__ = ["StageError", "StageProgress", "Staged", "WantedData", "stage", "whats_missing"]
