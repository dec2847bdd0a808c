"""What of a watch event is worth decoding.

Half of a pod's JSON and most of the time to decode it go to `managedFields` and the containers' specification, of which
nothing is read here. The API server has no way to leave them out of a watch (a Table and PartialObjectMetadata lack the
status), so they are cut out of the text. That is safe without a look at what lies between: in JSON a quote within a
string is escaped, so that `"spec":{` with both its quotes is a key and nothing else.
"""

from typing import Final

MANAGED: Final = b'"managedFields":['
SPEC: Final = b'}]},"spec":{'
"""The end of a list of objects that is the last of the metadata, and the key that follows."""
OWNERS: Final = b'"ownerReferences":['
"""The one other list of objects there: where it comes after the managed fields, they are not the last."""
STATUS: Final = b'},"status":{'
NODE: Final = b'"nodeName":"'


def trim_pod(line: bytes) -> bytes:
    """An event of a pod without what `PodView` does not read; the line as it is where it has not the usual order.

    The usual order is that of Kubernetes' Go types, without blanks.
    """
    managed = line.find(MANAGED)
    spec = line.find(SPEC, managed)
    status = line.rfind(STATUS, spec)
    if managed < 0 or spec < 0 or status < 0 or line.find(OWNERS, managed, spec) >= 0:
        return line
    node = line.find(NODE, spec, status)
    kept = b"" if node < 0 else line[node : line.index(b'"', node + len(NODE)) + 1]
    return b"".join((line[:managed], MANAGED, b'{"":""', SPEC, kept, line[status:]))
