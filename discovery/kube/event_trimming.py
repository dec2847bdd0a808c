"""Removes the parts of a watch event that are not worth decoding.

Half of a pod's JSON, and most of the time to decode it, is `managedFields` and the containers' specification, which
discovery does not read. The API server cannot leave them out of a watch (a Table and PartialObjectMetadata lack the
status), so they are cut out of the text. No look at what lies between is needed: JSON escapes a quote within a string,
so `"spec":{` with both its quotes can only be a key.
"""

from typing import Final

MANAGED: Final = b'"managedFields":['
SPEC: Final = b'}]},"spec":{'
"""The end of the metadata, if its last field is a list of objects, and the key that follows."""
OWNERS: Final = b'"ownerReferences":['
"""The only other list of objects in the metadata. If it follows the managed fields, they are not the last field."""
STATUS: Final = b'},"status":{'
NODE: Final = b'"nodeName":"'


def trim_pod(line: bytes) -> bytes:
    """A pod's event without the parts that `PodView` does not read.

    A line whose keys are not in the order of Kubernetes' Go types, without blanks, is returned unchanged.
    """
    managed = line.find(MANAGED)
    spec = line.find(SPEC, managed)
    status = line.rfind(STATUS, spec)
    if managed < 0 or spec < 0 or status < 0 or line.find(OWNERS, managed, spec) >= 0:
        return line
    node = line.find(NODE, spec, status)
    kept = b"" if node < 0 else line[node : line.index(b'"', node + len(NODE)) + 1]
    return b"".join((line[:managed], MANAGED, b'{"":""', SPEC, kept, line[status:]))
