"""What carried the messages, and whether that is what was expected."""

import pytest

from hvd_elastic.client.bench.nccl.nccl_network import Network, WrongNetworkError, check_network, networks
from tests.hvd_elastic.client.bench.nccl import nccl_text as text


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (text.EFA, ("efa",)),
        (text.OLD_EFA, ("efa",)),
        (text.IB, ("ib",)),
        (text.IB_PLUGIN, ("ib",)),
        (text.SOCKET, ("socket",)),
        (text.FOUND_ONLY, ("socket",)),
        (text.OFI_TCP, ("socket",)),
        (text.EFA_THEN_SOCKET, ("socket",)),
        (text.IB + text.SOCKET, ("ib", "socket")),
        (text.EFA.replace("efa", "verbs"), ("libfabric:verbs",)),
        ("NET/IB : No device found.\n", ()),
        ("", ()),
    ],
)
def test_which_network(log: str, found: tuple[str, ...]) -> None:
    assert networks(log.splitlines()) == found


@pytest.mark.parametrize("expected", Network)
def test_the_expected_network_alone_passes(expected: Network) -> None:
    check_network([expected.value], expected)
    for found in ([], [expected.value, "other"], ["other"]):
        with pytest.raises(WrongNetworkError):
            check_network(found, expected)


def test_sockets_in_place_of_efa_say_what_is_missing() -> None:
    with pytest.raises(WrongNetworkError, match=r"^socket carried what efa should: .*aws-ofi-nccl") as caught:
        check_network(["socket"], Network.EFA)
    assert caught.value.exit_code == 3
    with pytest.raises(WrongNetworkError, match="NCCL_DEBUG=INFO"):
        check_network([], Network.EFA)
