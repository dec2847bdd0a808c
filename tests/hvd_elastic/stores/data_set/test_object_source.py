"""Whichever store a data set is in, it is listed, read and compared in the same way."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.httpsession import get_cert_path

from hvd_elastic.staging import stage
from hvd_elastic.staging.stage_errors import DigestError, UnusableSourceError
from hvd_elastic.stores import s3_requests
from hvd_elastic.stores.data_set.object_source import PIECE_BYTES, ObjectSource
from hvd_elastic.stores.errors import ChangedObjectError, CheckpointUrlError, StoreError
from hvd_elastic.stores.object_requests import ListedObject
from testbed.kube.certificates import Authority
from testbed.s3_server import Put, PutParts
from tests.hvd_elastic.stores.data_set.conftest import Place
from tests.trainer.checkpoint.proxy import Fault

KEYS = ("a b+c%2F&=?#", "~tilde/$x;:@,'()!*", "\u00fcml\u00e4ut/\u4e2d\u6587", "%41", "end ")


def listed(source: ObjectSource) -> dict[str, ListedObject]:
    return {one.key: one for one in source.objects()}


def read(source: ObjectSource, one: ListedObject, offset: int = 0, length: int | None = None) -> bytes:
    return b"".join(source.pieces(one, offset, one.size_bytes if length is None else length))


def test_any_key_is_listed_and_read(place: Place) -> None:
    data = os.urandom(1000)
    for key in KEYS:
        place.put(key, data)
    place.put("empty", b"")
    source = place.source()
    objects = listed(source)
    assert objects.keys() == {*KEYS, "empty"}
    for key in KEYS:
        assert read(source, objects[key]) == data
        assert read(source, objects[key], 10, 20) == data[10:30]
    assert read(source, objects["empty"]) == b""
    source.close()


def test_a_data_set_is_staged_and_compared(place: Place, data: bytes, tmp_path: Path) -> None:
    wanted = {f"{number % 3}/{number}": os.urandom(number) for number in range(30)}
    wanted["large"] = data
    for key, content in wanted.items():
        place.put(key, content)
    for copied in (31, 0):
        done = stage(place.url, tmp_path, endpoint=place.endpoint, range_bytes=300_000)
        assert (done.copied, done.marker.objects, done.marker.unverified) == (copied, 31, 0)
    assert {key: (tmp_path / key).read_bytes() for key in wanted} == wanted


@pytest.mark.parametrize("size_bytes", [1000, PIECE_BYTES * 3])
def test_bytes_that_were_damaged_on_the_way_are_found(place: Place, tmp_path: Path, size_bytes: int) -> None:
    place.put("file", os.urandom(size_bytes))
    place.faults.add(Fault.FLIPPED_DOWN, "GET", "set(/|%2F)file", times=99)
    with pytest.raises(DigestError, match="file: the bytes that arrived are not those"):
        stage(place.url, tmp_path, endpoint=place.endpoint, range_bytes=2 * PIECE_BYTES)


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.THROTTLED, Fault.CUT_REQUEST, Fault.TRUNCATED])
def test_a_read_goes_on_where_it_was(place: Place, data: bytes, fault: Fault) -> None:
    place.put("file", data)
    source = place.source()
    one = listed(source)["file"]
    rule = place.faults.add(fault, "GET", "set(/|%2F)file", times=2)
    assert read(source, one) == data
    assert rule.hits >= 3


def test_a_listing_is_asked_for_again(place: Place) -> None:
    place.put("file", b"1")
    rule = place.faults.add(Fault.UNAVAILABLE, "GET", "prefix=|list", times=2)
    assert listed(place.source()).keys() == {"file"}
    assert rule.hits >= 3


def test_a_store_that_stays_away_is_an_error(place: Place) -> None:
    place.put("file", b"1")
    source = place.source()
    one = listed(source)["file"]
    place.faults.add(Fault.UNAVAILABLE, "GET", "set(/|%2F)file", times=999)
    with pytest.raises(StoreError, match="503"):
        read(source, one)


@pytest.mark.parametrize("replaced", [True, False])
def test_what_has_changed_is_an_error(place: Place, replaced: bool, tmp_path: Path) -> None:
    place.put("a", b"1")
    place.put("b", b"2")
    source = place.source()
    objects = listed(source)
    place.put("a", b"3") if replaced else place.delete("a")
    if replaced and place.endpoint is None:  # of a list the MD5 alone
        assert objects["a"].digest != listed(source)["a"].digest
    else:
        with pytest.raises(ChangedObjectError, match="stage again"):
            read(source, objects["a"])
    assert read(source, objects["b"]) == b"2"


@pytest.mark.parametrize("place", ["s3", "gcs", "http"], indirect=True)  # Azurite cannot list such a key
def test_a_key_that_obstore_refuses_is_named(place: Place, tmp_path: Path) -> None:
    place.put("fine", b"1")
    place.put("control\x01", b"1")
    with pytest.raises(UnusableSourceError, match=r"'control\\x01': .*another key"):
        stage(place.url, tmp_path, endpoint=place.endpoint)


@pytest.mark.parametrize(("place", "page"), [("s3", "max-keys=2"), ("gcs", "maxResults=2"), ("azure", "maxresults=2")],
                         indirect=["place"])  # fmt: skip
def test_a_listing_goes_on_over_pages(place: Place, page: str) -> None:
    for number in range(5):
        place.put(str(number), b"")
    place.put("", b"the marker of the prefix")
    place.faults.page = page
    assert [one.key for one in place.source().objects()] == [str(number) for number in range(5)]


def test_what_is_packed_in_google_cloud_storage_comes_as_it_is_stored(
    gcs_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    from google.auth.credentials import AnonymousCredentials
    from google.cloud.storage import Client

    packed = gzip.compress(b"words " * 1000)
    options = {"api_endpoint": gcs_place.endpoint}
    client = Client(project="p", credentials=AnonymousCredentials(), client_options=options)
    blob = client.bucket(gcs_place.url.split("/")[2]).blob("set/packed")
    blob.content_encoding = "gzip"
    blob.upload_from_string(packed)
    source = gcs_place.source()
    assert read(source, listed(source)["packed"]) == packed


@pytest.mark.process
def test_a_forked_child_gets_an_error(place: Place) -> None:
    """It would wait for ever for threads that it has not."""
    place.put("a", b"1")
    source = place.source()
    one = listed(source)["a"]
    assert read(source, one) == b"1"
    pid = os.fork()
    if pid == 0:
        try:
            read(source, one)
        except StoreError as error:
            os._exit(7 if "spawn it" in str(error) else 8)
        os._exit(9)
    deadline = time.monotonic() + 60
    while (done := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    if done == (0, 0):
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(done[1]) == 7


@pytest.mark.core
@pytest.mark.process
def test_threads_of_a_new_process_read_at_once(endpoint: str, bucket: str, put: Put, tmp_path: Path) -> None:
    """What is imported lazily is whole before they begin."""
    for number in range(32):
        put(str(number), b"1")
    command = [sys.executable, "-m", "hvd_elastic.cli", "stage-copier", "--source", f"s3://{bucket}/set"]
    for turn in range(3):
        folder = tmp_path / str(turn)
        subprocess.run([*command, "--into", str(folder), "--endpoint", endpoint], check=True, timeout=120)
        assert len([*folder.glob("[0-9]*")]) == 32


@pytest.mark.parametrize("url", ["file:///data/set", "ftp://host/set", "az://container/set", "https://account1.blob.x"])
def test_what_cannot_be_a_source_is_said(url: str) -> None:
    with pytest.raises(CheckpointUrlError):
        ObjectSource(url, endpoint=None, threads=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "correct the URL"),
        ("", "first line is TsvHttpData-1.0"),
        ("TsvHttpData-1.0\n{where}a\t1\n", "line 2: "),
        ("TsvHttpData-1.0\n{where}a\t1\tYQ==\n", "line 2: "),
        ("TsvHttpData-1.0\nhttps://other/a\t1\t{md5}\n", "line 2: "),
        (
            "TsvHttpData-1.0\n{where}a?b\t1\twHENa08V36iPYAsOa2JAdw==\n{where}a\tx\twHENa08V36iPYAsOa2JAdw==\n",
            "line 3: ",
        ),
    ],
)
def test_what_is_no_list_of_files_is_said(
    http_place: Place, http_files: dict[str, bytes], text: str | None, words: str
) -> None:
    where = http_place.url.rpartition("/")[0] + "/"
    if text is not None:
        http_files["/set/other.tsv"] = text.format(where=where, md5="wHENa08V36iPYAsOa2JAdw==").encode()
    source = ObjectSource(f"{where}other.tsv", endpoint=None, threads=1, sleep=lambda _: None)
    with pytest.raises(StoreError, match=words):
        list(source.objects())


@pytest.fixture
def with_tls(endpoint: str, tmp_path: Path) -> Iterator[tuple[str, Authority]]:
    """The same buckets at another URL, and who vouches for it."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    authority = Authority.create(tmp_path / "authority")
    pair = authority.issue("server", "server", answers_to=["127.0.0.1"])
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=(str(pair.certificate), str(pair.key)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", authority
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.distribution
def test_an_authority_of_ones_own_is_one_of_several_in_a_file(
    with_tls: tuple[str, Authority], bucket: str, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a", b"1")
    url, authority = with_tls
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(Path(get_cert_path(True)).read_bytes() + authority.root.read_bytes())
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    source = ObjectSource(f"s3://{bucket}/set", endpoint=url, threads=2)
    assert read(source, listed(source)["a"]) == b"1"


class Keys:
    """Credentials that are asked for anew each time."""

    def __init__(self) -> None:
        self.asked = 0

    def get_frozen_credentials(self) -> SimpleNamespace:
        self.asked += 1
        return SimpleNamespace(access_key=f"key{self.asked}", secret_key="secret", token=None)


def test_credentials_that_are_about_to_end_are_asked_for_again(
    s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_place.put("a", b"1")
    source = s3_place.source()
    one = listed(source)["a"]
    keys = Keys()
    monkeypatch.setattr(source._requests.client, "_get_credentials", lambda: keys)  # type: ignore[attr-defined]
    for _ in range(3):
        assert read(source, one) == b"1"
    assert keys.asked == 1
    source._opened = None
    monkeypatch.setattr(s3_requests, "_CREDENTIALS_LAST", timedelta(seconds=1))
    deadline = time.monotonic() + 60
    while keys.asked < 4:  # not more often than each tenth of a second
        assert read(source, one) == b"1"
        assert time.monotonic() < deadline


@pytest.mark.parametrize("by_key", ["aws:kms", "aws:kms:dsse"])
def test_an_object_that_is_encrypted_with_a_key_has_no_etag_of_its_bytes(
    endpoint: str, client: Any, bucket: str, by_key: str
) -> None:
    client.meta.config.request_checksum_calculation = "when_required"
    client.put_object(Bucket=bucket, Key="set/a", Body=b"secret", ServerSideEncryption=by_key)
    source = ObjectSource(f"s3://{bucket}/set", endpoint=endpoint, threads=1)
    assert source.digest_of(listed(source)["a"]) is None


def test_a_multipart_upload_has_the_digest_of_its_parts(
    endpoint: str, bucket: str, put_parts: PutParts, tmp_path: Path
) -> None:
    even, uneven = [os.urandom(5 << 20), os.urandom(1000)], [os.urandom(size) for size in (6 << 20, 5 << 20, 1000)]
    put_parts("even", even)
    put_parts("uneven", uneven)
    done = stage(f"s3://{bucket}/set", tmp_path, endpoint=endpoint, range_bytes=1 << 20)
    assert (tmp_path / "even").read_bytes() == b"".join(even)
    assert (tmp_path / "uneven").read_bytes() == b"".join(uneven)
    assert done.marker.unverified == 1
