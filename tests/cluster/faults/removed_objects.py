"""Objects of the cluster that somebody deletes under a job, and makes again."""

import contextlib
from collections.abc import Iterator

from testbed.kube.kubectl import Kubectl

_OF_THE_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


@contextlib.contextmanager
def removed(kubectl: Kubectl, kind: str, name: str) -> Iterator[None]:
    """It is not there meanwhile."""
    before = kubectl.get(kind, name)
    kubectl("delete", kind, name)
    try:
        yield
    finally:
        metadata = {key: value for key, value in before["metadata"].items() if key not in _OF_THE_SERVER}
        kubectl.apply([{**before, "metadata": metadata}])
