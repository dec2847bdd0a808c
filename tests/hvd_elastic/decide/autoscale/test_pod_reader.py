"""The autoscaler lists the pods once, and then asks for what has changed, over real HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient, UnreachableError
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.session import Session
from hvd_elastic.decide.autoscale.pod_reader import FRESH_SECONDS, PATH, GpuPodReader
from testbed.kube_api import PODS, Cut, KubeApi, Request, Status


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    yield served
    served.stop()


class Autoscaler:
    """Reads by a clock of its own."""

    def __init__(self, api: KubeApi) -> None:
        self.now = 0.0
        session = Session(Login(server=f"http://127.0.0.1:{api.port}"))
        self._reader = GpuPodReader(ClusterClient(session), clock=lambda: self.now)

    def read(self) -> dict[str, str]:
        """The pods and their nodes."""
        return {pod.uid: pod.node for pod in self._reader.read()}


@pytest.fixture
def autoscaler(api: KubeApi) -> Autoscaler:
    return Autoscaler(api)


def pod(name: str, *, node: str = "", gpus: int = 1, phase: str = "Running", uid: str = "") -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid or name},
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": phase},
    }


def test_what_changed_is_all_that_is_sent(api: KubeApi, autoscaler: Autoscaler) -> None:
    for name in ("stays", "goes", "ends", "is-bound"):
        api.put(PODS, pod(name))
    api.put(PODS, pod("web", gpus=0))
    assert set(autoscaler.read()) == {"stays", "goes", "ends", "is-bound"}
    api.remove(PODS, "goes")
    api.put(PODS, pod("ends", phase="Succeeded"))
    api.put(PODS, pod("is-bound", node="node-a"))
    api.put(PODS, pod("web", gpus=0))
    api.put(PODS, pod("comes"))
    expected = {"stays": "", "is-bound": "node-a", "comes": ""}
    assert autoscaler.read() == expected
    api.remove(PODS, "comes")
    api.put(PODS, pod("comes", uid="another"))
    api.bookmark()
    assert autoscaler.read() == {"stays": "", "is-bound": "node-a", "another": ""}
    assert (api.lists(PATH), api.asked(watch=True, path=PATH)) == (1, 2)


@pytest.mark.parametrize("fault", [Status(410), Status(503), Status(429), Cut()])
def test_after_a_fault_they_are_listed_anew(api: KubeApi, autoscaler: Autoscaler, fault: Exception) -> None:
    api.put(PODS, pod("goes"))
    autoscaler.read()
    api.remove(PODS, "goes")
    api.put(PODS, pod("comes"))

    def fails(request: Request) -> None:
        if request.is_watch:
            raise fault

    api.fault = fails
    assert set(autoscaler.read()) == {"comes"}
    api.fault = lambda _request: None
    assert set(autoscaler.read()) == {"comes"}
    assert (api.lists(PATH), api.asked(watch=True, path=PATH)) == (2, 2)


def test_a_history_that_the_server_has_forgotten(api: KubeApi, autoscaler: Autoscaler) -> None:
    autoscaler.read()
    api.put(PODS, pod("comes"))
    api.compact()
    assert set(autoscaler.read()) == {"comes"}
    assert api.lists(PATH) == 2


def test_one_that_did_not_lead_for_a_while_lists_them_anew(api: KubeApi, autoscaler: Autoscaler) -> None:
    autoscaler.read()
    autoscaler.now += FRESH_SECONDS
    autoscaler.read()
    assert (api.lists(PATH), api.asked(watch=True, path=PATH)) == (2, 0)


def test_rights_of_an_earlier_release_suffice(
    api: KubeApi, autoscaler: Autoscaler, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: Request) -> None:
        if request.is_watch:
            raise Status(403)

    api.fault = refuse
    for name in ("one", "two", "three"):
        api.put(PODS, pod(name))
        assert name in autoscaler.read()
    assert (api.lists(PATH), api.asked(watch=True, path=PATH)) == (3, 1)
    assert "print the rights anew" in caplog.text


def test_a_list_that_fails_leaves_nothing_behind(api: KubeApi, autoscaler: Autoscaler) -> None:
    """A part of the pods must not be decided over."""
    api.put(PODS, pod("one"))
    autoscaler.read()
    api.stop()
    with pytest.raises(UnreachableError):
        autoscaler.read()
    api.start()
    assert set(autoscaler.read()) == {"one"}
    assert api.lists(PATH) == 2


def test_what_is_not_json_is_a_fault() -> None:
    chopped = KubeApi(chop=lambda line: [line[: len(line) // 2], b"\n"])
    try:
        autoscaler = Autoscaler(chopped)
        autoscaler.read()
        chopped.put(PODS, pod("comes"))
        assert set(autoscaler.read()) == {"comes"}
        assert chopped.lists(PATH) == 2
    finally:
        chopped.stop()
