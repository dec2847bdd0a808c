"""What a job's own pods may say, as JSON Schema: the fields that Kubernetes publishes, without those that are refused.

It is kept here, not referred to by the URL of a published schema: that asks for `containers`, which a part of a
template may leave out, refuses the null that removes a field, offers fields that a job refuses, and needs a network.
Fields and descriptions are those of api/openapi-spec/swagger.json of Kubernetes 1.37 (Apache-2.0). A test makes the
file anew from it.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(__file__).with_name("pod_schema.json")
PREFIX: Final = "pod."
"""Of each name, which is Kubernetes' own after it: `pod.Container`."""
TEMPLATE: Final = f"{PREFIX}PodTemplateSpec"


@functools.cache
def definitions() -> Mapping[str, Any]:
    """Schemas by name, which refer to each other as `#/$defs/NAME`."""
    found: Mapping[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def pod_fields() -> Mapping[str, Any]:
    """The fields of a pod's `spec`."""
    fields: Mapping[str, Any] = definitions()[f"{PREFIX}PodSpec"]["properties"]
    return fields
