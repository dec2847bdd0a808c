"""Objects are read by the token of a pod's identity, which is renewed: no key is anywhere."""

from hvd_elastic.stores.data_set.object_source import ObjectSource
from hvd_elastic.stores.location import Location
from tests.trainer.checkpoint.proxy import Faults
from tests.trainer.checkpoint.test_cloud_identities import (
    Tokens,
    a_pod_without_keys,
    authority,
    entra,
    gke,
    managed_identity,
    metadata,
    pod,
    tls,
    tokens,
    workload_identity,
)

__all__ = [
    "a_pod_without_keys",
    "authority",
    "entra",
    "gke",
    "managed_identity",
    "metadata",
    "pod",
    "tls",
    "tokens",
    "workload_identity",
]


def test_a_token_is_used_and_renewed(pod: tuple[str, Faults], tokens: Tokens) -> None:
    url, faults = pod
    faults.credential, tokens.seconds = "Bearer first", 100  # less than what is left when it is renewed
    store = Location.parse(url).open()
    assert store.create("a", b"data")
    source = ObjectSource(url, endpoint=None, threads=1, sleep=lambda _: None)
    (one,) = source.objects()
    assert b"".join(source.pieces(one, 0, 4)) == b"data"
    tokens.token, faults.credential = "second", "Bearer second"
    assert b"".join(source.pieces(one, 0, 4)) == b"data"
    source.close()
    store.close()
