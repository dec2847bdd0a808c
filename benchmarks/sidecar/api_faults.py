"""What may be wrong with an API server: how each fault begins, and how it ends."""

import threading
from collections.abc import Callable
from http import HTTPStatus

from benchmarks.sidecar.small_cluster import no_nodes
from testbed.kube_api import PODS, Cut, Fault, KubeApi, Request, Status

Action = Callable[[KubeApi], object]


def refusing(fault: Fault) -> tuple[Action, Action]:
    """Every request for pods meets the fault."""

    def begin(api: KubeApi) -> None:
        def on_pods(request: Request) -> None:
            if request.path == PODS:
                fault(request)
            no_nodes(request)

        api.fault = on_pods

    def end(api: KubeApi) -> None:
        api.fault = no_nodes

    return begin, end


def status(code: int) -> Fault:
    def fault(_: Request) -> None:
        raise Status(code, {"Retry-After": "1"} if code == HTTPStatus.TOO_MANY_REQUESTS else {})

    return fault


def cut(_: Request) -> None:
    raise Cut


def hanging() -> tuple[Action, Action]:
    """Requests are accepted and not answered."""
    healed = threading.Event()

    def hang(_: Request) -> None:
        healed.wait()

    begin, end = refusing(hang)

    def heal(api: KubeApi) -> None:
        end(api)
        healed.set()

    return begin, heal


def garbled() -> tuple[Action, Action]:
    """Pods are listed, but their events cannot be read."""

    def begin(api: KubeApi) -> None:
        api.chop = lambda line: [line.replace(b'"type":', b'"tyqe":')]

    def end(api: KubeApi) -> None:
        api.chop = lambda line: [line]

    return begin, end


FAULTS: dict[str, tuple[Action, Action]] = {
    "stopped": (KubeApi.stop, KubeApi.start),
    "cutting": refusing(cut),
    **{str(code): refusing(status(code)) for code in (401, 403, 429, 500, 503)},
    "hanging": hanging(),
    "garbled": garbled(),
}
