"""Why a pod that has a node does not run there yet, as the kubelet says it."""

from collections.abc import Iterable
from typing import Final

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.client.report.words.cause_words import scheduler_words
from hvd_elastic.client.report.words.time_words import event_time

_PULL_FAILURES: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
"""A pod goes from one to the other and back. Both messages end with the cause, and name a port that always changes."""
_BEING_MADE: Final = frozenset({None, "ContainerCreating", "PodInitializing"})
_TROUBLES: Final = frozenset(
    {
        "FailedAttachVolume",
        "FailedCreatePodContainer",
        "FailedCreatePodSandBox",
        "FailedMapVolume",
        "FailedMount",
        "FailedPrepareDynamicResources",
    }
)
"""Reasons of the Events that alone tell what keeps a container from being made (Kubernetes 1.37,
`pkg/kubelet/events/event.go`)."""


def starts(pod: Json) -> bool:
    """Whether a pod has a node, and does not run there yet: its Events may say why."""
    return bool(pod["spec"].get("nodeName")) and (pod.get("status") or {}).get("phase") == "Pending"


def start_words(pod: Json, events: Iterable[Json] = ()) -> str:
    """What the pod's containers wait for: `cannot pull r.io/image:1: not found`; empty while they are being made.

    Args:
        pod: one that has a node.
        events: those that are known, of any object.
    """
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason"), waiting.get("message") or ""
        if reason in _PULL_FAILURES:
            _, colon, cause = message.rpartition(": ")
            return scheduler_words(f"cannot pull {container.get('image')}{colon}{cause if colon else ''}")
        if reason not in _BEING_MADE:
            return scheduler_words(": ".join(filter(None, (reason, message))))
    uid = pod["metadata"]["uid"]
    told = [event for event in events if event["involvedObject"].get("uid") == uid] if starts(pod) else []
    # A trouble is over when it told of something else since. Their times are whole seconds.
    last = max(told, key=lambda event: (event_time(event), event.get("reason") in _TROUBLES), default={})
    return scheduler_words(f"{last['reason']}: {last.get('message')}") if last.get("reason") in _TROUBLES else ""
