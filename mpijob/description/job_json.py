"""A job description as data: to be kept with the job, shown, and read again."""

import json
import re
from typing import Final

from hvd_elastic.mpijob.description.job_spec import JobSpec

_UNSAFE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON admits as they are and YAML does not, or folds."""


def as_json(spec: JobSpec) -> str:
    """What differs from the defaults, in one line; `read_job` reads it back to an equal spec."""
    values = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
