"""A job description as JSON, which is stored with the job and can be read again."""

import json
import re
from typing import Final

from hvd_elastic.mpijob.description.job_spec import JobSpec

_UNSAFE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON allows unescaped, but that YAML does not allow or folds."""


def as_json(spec: JobSpec) -> str:
    """The values that differ from their defaults, on one line. `read_job` reads an equal spec from it."""
    values = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
