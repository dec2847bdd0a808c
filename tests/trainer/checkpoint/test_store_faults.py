"""Faults of an object store, injected on the wire between each cloud's own library and a real server."""

import itertools
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.stores import object_requests, s3_requests
from hvd_elastic.stores.azure_requests import AzureRequests
from hvd_elastic.stores.gcs_requests import GcsRequests
from hvd_elastic.stores.location import Location
from hvd_elastic.stores.object_requests import ObjectRequests
from hvd_elastic.stores.object_store import ObjectStore
from hvd_elastic.stores.retry import TransientError
from hvd_elastic.stores.s3_requests import S3Requests, make_client, translate_errors
from hvd_elastic.system.atomic_file import replace_file
from hvd_elastic.trainer.checkpoint import Checkpoints, FencedError, StoreError, StoreFullError
from hvd_elastic.trainer.checkpoint.errors import CorruptError
from testbed.azure_server import ACCOUNT, KEY
from tests.hvd_elastic.stores.store_servers import OTHER_CLOUDS
from tests.trainer.checkpoint.proxy import Fault, Faults, proxy, wait_for
from tests.trainer.checkpoint.snapshots import large, same, small

Open = Callable[..., Checkpoints]

ONCE = [Fault.UNAVAILABLE, Fault.THROTTLED, Fault.CUT_REQUEST, Fault.LOST_ANSWER]


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A store of one cloud, and what its requests look like."""

    url: str
    faults: Faults
    requests: tuple[tuple[str, str], ...]
    """Method and path of each kind that a save sends."""
    part: str
    """Path of the second part, which is PUT."""
    write: tuple[str, str]
    """Of a manifest, a claim."""
    read: str
    """Path of what a GET of an object, whose key follows, asks for."""
    two_keys: str
    """What limits a listing, in its query."""


_PARTS = (("POST", r"data/.*\?uploads"), ("PUT", r"data/.*partNumber=2"), ("POST", r"data/.*uploadId"))


def s3_cloud(url: str, faults: Faults) -> Cloud:
    return Cloud(
        url=url,
        faults=faults,
        requests=(
            *_PARTS,
            ("GET", "latest"),
            ("PUT", "owner.json"),
            ("PUT", "latest"),
            ("PUT", "manifests/"),
            ("HEAD", "data/"),
            ("GET", "list-type=2"),
            ("POST", "delete"),
        ),
        part=r"partNumber=2",
        write=("PUT", "manifests/"),
        read="",
        two_keys="max-keys=2",
    )


def gcs_cloud(url: str, faults: Faults) -> Cloud:
    return Cloud(
        url=url,
        faults=faults,
        requests=(
            *_PARTS,
            ("GET", r"/download/.*latest"),
            ("POST", r"/upload/.*ifGenerationMatch"),
            ("GET", r"/storage/v1/b/[^/]+/o/.*data"),
            ("GET", r"/o\?.*prefix"),
            ("GET", r"\?uploads"),
            ("DELETE", "/o/"),
        ),
        part=r"partNumber=2",
        write=("POST", "/upload/"),
        read="/download/.*",
        two_keys="maxResults=2",
    )


def azure_cloud(url: str, faults: Faults) -> Cloud:
    return Cloud(
        url=url,
        faults=faults,
        requests=(
            ("PUT", r"data/.*comp=block&"),
            ("PUT", r"data/.*comp=blocklist"),
            ("GET", "latest"),
            ("PUT", "owner.json"),
            ("PUT", "latest"),
            ("PUT", "manifests/"),
            ("HEAD", "data/"),
            ("GET", "comp=list"),
            ("GET", "include=uncommittedblobs"),
            ("DELETE", "data/"),
        ),
        part="blockid=MDAwMDI",
        write=("PUT", "manifests/"),
        read="",
        two_keys="maxresults=2",
    )


CLOUDS = {"s3": s3_cloud, "gcs": gcs_cloud, "azure": azure_cloud}


@pytest.fixture(params=["s3", *OTHER_CLOUDS])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    faults = "faults" if request.param == "s3" else f"{request.param}_faults"
    url = request.getfixturevalue(f"{request.param}_url")
    return CLOUDS[request.param](url, request.getfixturevalue(faults))


def impatient(url: str, *, attempts: int = 3) -> ObjectStore:
    store = Location.parse(url).open(sleep=lambda _: None)
    assert isinstance(store, ObjectStore)
    store._attempts = attempts
    return store


def saved(checkpoints: Checkpoints, step: int, snapshot: dict[str, object] | None = None) -> bool:
    checkpoints.save(snapshot or small(step), step=step, world_size=2, reason="interval")
    return checkpoints.flush(60)


@pytest.mark.parametrize("fault", ONCE)
def test_a_transient_fault_of_any_request_is_retried(cloud: Cloud, opened: Open, fault: Fault) -> None:
    rules = [cloud.faults.add(fault, method, path) for method, path in cloud.requests]
    checkpoints = opened(cloud.url, keep=1)
    assert saved(checkpoints, 1, large(1, mib=6)), checkpoints.counts.error
    assert saved(checkpoints, 2), checkpoints.counts.error
    wait_for(lambda: all(rule.hits > 1 for rule in rules))
    found = opened(cloud.url, "two").latest()
    assert found is not None
    assert same(found.load(), small(2))


@pytest.mark.parametrize("fault", [Fault.TRUNCATED, Fault.FLIPPED_DOWN, Fault.CUT_REQUEST])
@pytest.mark.parametrize("path", ["manifests/00000001", "data/00000001"])
def test_what_is_damaged_in_transfer_is_read_again(cloud: Cloud, opened: Open, fault: Fault, path: str) -> None:
    checkpoints = opened(cloud.url)
    assert saved(checkpoints, 1, large(1))
    rule = cloud.faults.add(fault, "GET", cloud.read + path.replace("/", "(/|%2F)"))
    found = checkpoints.latest()
    assert found is not None
    assert same(found.load(), large(1))
    assert rule.hits > 1
    assert checkpoints.rejected == ()


def test_a_register_that_is_damaged_in_transfer_fences_no_writer_out(cloud: Cloud, opened: Open) -> None:
    cloud.faults.add(Fault.FLIPPED_DOWN, "GET", f"{cloud.read}latest", times=2)
    checkpoints = opened(cloud.url)
    assert saved(checkpoints, 1), checkpoints.counts.error


@pytest.mark.parametrize("cloud", ["gcs", "azure"], indirect=True)
def test_a_small_object_is_compared_to_what_the_store_says_of_it(cloud: Cloud) -> None:
    store = impatient(cloud.url)
    assert store.create("manifests/a", b"right")
    rule = cloud.faults.add(Fault.FLIPPED_DOWN, "GET", f"{cloud.read}manifests(/|%2F)a")
    found = store.read("manifests/a")
    assert (found and found.data, rule.hits) == (b"right", 2)


def test_a_bit_flipped_on_the_way_up_is_refused_by_the_store_and_sent_again(cloud: Cloud, opened: Open) -> None:
    checkpoints = opened(cloud.url)
    rules = [cloud.faults.add(Fault.FLIPPED_UP, *request) for request in (("PUT", cloud.part), cloud.write)]
    assert saved(checkpoints, 1, large(1)), checkpoints.counts.error
    assert all(rule.hits > 1 for rule in rules)
    found = opened(cloud.url, "two").latest()
    assert found is not None
    assert same(found.load(), large(1))


def test_a_dripping_body_is_given_up_and_asked_for_again(
    cloud: Cloud, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = opened(cloud.url)
    assert saved(checkpoints, 1, large(1))
    monkeypatch.setattr(object_requests, "PART_SECONDS", 2.0)
    rule = cloud.faults.add(Fault.DRIP, "GET", f"{cloud.read}data(/|%2F)", times=2)
    found = checkpoints.latest()
    assert rule.hits > 3
    assert found is not None
    assert same(found.load(), large(1))


def test_a_conflict_of_conditional_writes_is_tried_again(s3_url: str, faults: Faults, opened: Open) -> None:
    faults.add(Fault.CONFLICT, "PUT", "manifests/", times=2)
    faults.add(Fault.CONFLICT, "PUT", "latest", times=1)
    assert saved(opened(s3_url), 1)


def test_an_outage_fails_the_save_not_the_training_and_leaves_nothing_behind(cloud: Cloud) -> None:
    store = impatient(cloud.url)
    cloud.faults.add(Fault.UNAVAILABLE, "PUT", cloud.part, times=3)
    upload = store.start_upload("data/a", 6 << 20)
    upload.put(1, 0, bytearray(5 << 20), s3_digest(5 << 20))
    with pytest.raises(TransientError, match="503"):
        upload.put(2, 5 << 20, bytearray(1 << 20), s3_digest(1 << 20))
    upload.abort()
    store.discard_uploads("data", lambda key: pytest.fail(f"{key} was left"))


def s3_digest(size: int) -> bytes:
    from hashlib import sha256

    return sha256(bytes(size)).digest()


@pytest.mark.distribution
def test_after_an_outage_the_next_save_comes_soon(s3_url: str, faults: Faults, opened: Open) -> None:
    clock = itertools.count(0.0, 10.0)
    checkpoints = opened(s3_url, interval_seconds=3600, clock=lambda: next(clock))
    checkpoints._claim.store = impatient(s3_url)
    faults.add(Fault.UNAVAILABLE, "POST", "uploads", times=3)
    assert not saved(checkpoints, 1)
    assert checkpoints.counts.failed == 1
    assert "SlowDown" in checkpoints.counts.error
    assert [checkpoints.due(2) for _ in range(4)][-1], "half a minute later, not an hour"
    assert saved(checkpoints, 2)
    assert checkpoints.counts.error == ""
    assert not any(checkpoints.due(3) for _ in range(4))


def test_an_unreachable_store_is_not_an_empty_store(cloud: Cloud, opened: Open) -> None:
    checkpoints = opened(cloud.url)
    assert saved(checkpoints, 1)
    checkpoints._claim.store = impatient(cloud.url)
    cloud.faults.add(Fault.UNAVAILABLE, "GET", r"[?&]prefix=", times=99)
    with pytest.raises(StoreError, match="503"):
        checkpoints.latest()
    cloud.faults.clear()
    cloud.faults.add(Fault.UNAVAILABLE, "GET", f"{cloud.read}data(/|%2F)", times=999)
    with pytest.raises(StoreError, match="503"):
        checkpoints.latest()


def test_an_endpoint_that_ignores_conditions_is_refused(cloud: Cloud, opened: Open) -> None:
    cloud.faults.add(Fault.IGNORE_CONDITIONS, cloud.write[0], ".", times=99)
    with pytest.raises(StoreError, match="only if there is none, so two writers cannot be kept apart"):
        opened(cloud.url)


def test_an_endpoint_without_etags_is_refused(s3_url: str, faults: Faults, opened: Open) -> None:
    faults.add(Fault.NO_ETAG, "PUT", ".", times=99)
    with pytest.raises(StoreError, match="without ETag"):
        opened(s3_url)


def test_a_quota_is_a_full_store(s3_url: str) -> None:
    """MinIO answers 507, others name the quota. So older checkpoints make room, and nothing is asked again in vain."""
    from botocore.exceptions import ClientError

    for status, code in ((507, "XMinioStorageFull"), (403, "QuotaExceeded")):
        answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        with pytest.raises(StoreFullError, match="lower `keep`"), translate_errors("part 1"):
            raise ClientError(answer, "UploadPart")


def test_a_missing_bucket_is_reported(cloud: Cloud, opened: Open) -> None:
    with pytest.raises(StoreError, match=r"404.*create the (bucket|container), or correct the URL"):
        opened(cloud.url.replace("://b", "://c"))


def test_rot_at_rest_falls_back_to_the_one_before(s3_url: str, faults: Faults, opened: Open, s3_client: Any) -> None:
    checkpoints = opened(s3_url)
    assert saved(checkpoints, 1, large(1))
    assert saved(checkpoints, 2, large(2))
    bucket, prefix = s3_url.removeprefix("s3://").split("?")[0].split("/", 1)
    key = max(checkpoints._claim.store.keys("data"))
    body = bytearray(s3_client.get_object(Bucket=bucket, Key=f"{prefix}/{key}")["Body"].read())
    body[7 << 20] ^= 1
    s3_client.put_object(Bucket=bucket, Key=f"{prefix}/{key}", Body=bytes(body))
    found = checkpoints.latest()
    assert found is not None
    assert found.step == 1
    assert same(found.load(), large(1))
    (rejected,) = checkpoints.rejected
    assert rejected.manifest.endswith("-step-2.json")
    assert rejected.why == "part 2 of 3 does not match its SHA-256"


def test_a_lost_answer_to_a_move_by_a_successor_is_not_taken_for_ones_own(cloud: Cloud, opened: Open) -> None:
    old = opened(cloud.url, "one")
    assert saved(old, 1)
    new = opened(cloud.url, "two")
    for _ in range(2):  # the manifest, and `latest`
        cloud.faults.add(Fault.LOST_ANSWER, cloud.write[0], cloud.write[1].replace("manifests", "(manifests|latest)"))
    assert saved(new, 2)
    assert not saved(old, 3)
    with pytest.raises(FencedError, match="launcher two has claimed"):
        old.save(small(4), step=4, world_size=2, reason="interval")


def test_more_objects_than_one_listing_names(cloud: Cloud) -> None:
    store = impatient(cloud.url)
    names = {f"manifests/{n}" for n in range(5)}
    assert all(store.create(name, b"x") for name in names)
    cloud.faults.page = cloud.two_keys
    assert set(store.keys("manifests")) == names
    listings = [path for method, path in cloud.faults.log if method == "GET" and "prefix=" in path]
    assert len(listings) == 3


def test_missing_data_is_corrupt_not_an_outage(cloud: Cloud, opened: Open) -> None:
    checkpoints = opened(cloud.url)
    assert saved(checkpoints, 1)
    checkpoints._claim.store.delete(checkpoints._claim.store.keys("data"))
    with pytest.raises(CorruptError, match="none of the checkpoints verifies"):
        checkpoints.latest()


class Mute:
    """A server that accepts connections and answers nothing: it stays silent, or hangs up."""

    def __init__(self, *, hangs_up: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._hangs_up = hangs_up
        self._accepted: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._accepted.append(connection)
            if self._hangs_up:
                connection.recv(100)
                connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        for connection in self._accepted:
            connection.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(params=["refused", "silent", "hangs up", "name unknown"])
def dead_endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of an endpoint at which no store answers."""
    if request.param == "refused":
        yield f"http://127.0.0.1:{free_port()}"
    elif request.param == "name unknown":
        yield "http://no-such-host.invalid"
    else:
        server = Mute(hangs_up=request.param == "hangs up")
        yield f"http://127.0.0.1:{server.port}"
        server.close()


def s3_requests_to(endpoint: str) -> ObjectRequests:
    return S3Requests(make_client(endpoint=endpoint, region="us-east-1", threads=1), bucket="bucket", prefix="p")


def gcs_requests_to(endpoint: str) -> ObjectRequests:
    return GcsRequests(endpoint=endpoint, bucket="bucket", prefix="p", threads=1)


def azure_requests_to(endpoint: str) -> ObjectRequests:
    return AzureRequests(account_url=f"{endpoint}/{ACCOUNT}", container="bucket", prefix="p", threads=1)


@pytest.fixture
def azure_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)


@pytest.mark.usefixtures("s3_proxy", "azure_key")  # for their credentials
@pytest.mark.parametrize("requests_to", [s3_requests_to, gcs_requests_to, azure_requests_to])
def test_a_store_that_is_not_there_is_asked_again(
    dead_endpoint: str, requests_to: Callable[[str], ObjectRequests], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blip of the network, of DNS or of the endpoint: each request ends as a failure that may pass."""
    monkeypatch.setattr(object_requests, "SILENCE_SECONDS", 0.1)
    waits: list[float] = []
    store = ObjectStore(requests_to(dead_endpoint), part_bytes=1, threads=1, sleep=waits.append, attempts=3)
    requests: list[Callable[[], object]] = [
        lambda: store.read("latest"),
        lambda: store.size_of("latest"),
        lambda: store.create("key", b"x"),
        lambda: store.replace("key", b"x", version="1"),
        lambda: store.keys("manifests"),
        lambda: store.delete(["key"]),
        lambda: store.read_into("data/a", 0, memoryview(bytearray(4))),
        lambda: store.start_upload("data/a", 4).put(1, 0, bytearray(4), s3_digest(4)),
        lambda: store.discard_uploads("data", lambda _: True),
    ]
    for request in requests:
        waits.clear()
        with pytest.raises(TransientError):
            request()
        assert len(waits) == 2
    store.close()


def test_a_store_that_refuses_connections_for_a_moment_is_used_when_it_is_back(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the pod of the store is replaced, or before its Service has an endpoint."""
    port = free_port()
    url = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", cloud.url)
    monkeypatch.setattr(s3_requests, "make_client", make_client)
    with ExitStack() as back:
        store = Location.parse(url).open(sleep=lambda _: back.enter_context(proxy(cloud.faults.upstream, port=port)))
        assert store.keys("manifests") == ()
        store.close()


def test_a_store_that_asks_for_time_is_given_it(cloud: Cloud) -> None:
    waits: list[float] = []
    store = Location.parse(cloud.url).open(sleep=waits.append)
    cloud.faults.add(Fault.THROTTLED, *cloud.write)
    assert store.create("manifests/a", b"x")
    assert [wait >= 1 for wait in waits] == [True]


def test_more_than_a_store_holds_is_refused(cloud: Cloud) -> None:
    store = impatient(cloud.url)
    with pytest.raises(StoreError, match=r"bytes are more than this store holds: \d+ TiB"):
        store.start_upload("data/a", store.requests.most_bytes + 1)


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the credentials file with keys of this name, the only credentials there are."""
    file = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    def write(name: str) -> None:
        lines = (f"aws_{field} = {name}" for field in ("access_key_id", "secret_access_key", "session_token"))
        replace_file(file, "\n".join(("[default]", *lines)))

    return write


def test_a_credentials_file_that_is_rotated_is_read_anew(
    s3_url: str, faults: Faults, opened: Open, keys: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = s3_url.partition("endpoint=")[2].partition("&")[0]
    monkeypatch.setattr(
        s3_requests, "make_client", lambda **_: make_client(endpoint=endpoint, region="us-east-1", threads=3)
    )
    faults.credential = "Credential=first"
    keys("first")
    checkpoints = opened(s3_url)
    for step, name in enumerate(("second", "third"), 1):
        faults.credential = f"Credential={name}"
        keys(name)
        assert saved(checkpoints, step, large(step, mib=11)), checkpoints.counts.error
    found = checkpoints.latest()
    assert found is not None
    faults.credential = "Credential=fourth"
    assert not saved(checkpoints, 3), "the old ones have ended, and others are not there yet"
    assert "ExpiredToken" in checkpoints.counts.error
    keys("fourth")
    assert same(found.load(), large(2, mib=11))
    assert saved(checkpoints, 4), checkpoints.counts.error


@pytest.mark.usefixtures("s3_proxy")
def test_a_wrong_certificate_is_not_asked_again() -> None:
    """It does not pass by itself."""
    from botocore.exceptions import SSLError

    refused = SSLError(endpoint_url="https://store", error="[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED") as caught, s3_requests.translate_errors("list"):
        raise refused
    assert not isinstance(caught.value, TransientError)
    broken = SSLError(endpoint_url="https://store", error="EOF occurred in violation of protocol")
    with pytest.raises(TransientError), s3_requests.translate_errors("list"):
        raise broken


def test_a_wrong_clock_is_said_and_one_that_is_set_by_then_is_no_error(s3_url: str, faults: Faults) -> None:
    """S3, which signs each request with its time. Azure does so for account keys alone."""
    store = impatient(s3_url)
    faults.add(Fault.SKEWED, "PUT", "manifests/a")
    assert store.create("manifests/a", b"1")
    faults.add(Fault.SKEWED, "PUT", "manifests/b", times=99)
    with pytest.raises(StoreError, match=r"RequestTimeTooSkewed.*set the clock"):
        store.create("manifests/b", b"1")
    store.close()
