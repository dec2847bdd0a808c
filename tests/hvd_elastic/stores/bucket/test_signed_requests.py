"""A bucket is listed and its objects are described without boto3 as with it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.stores.bucket.listed_page import ListedPage, SourceObject
from hvd_elastic.stores.bucket.object_source import ObjectSource
from hvd_elastic.stores.errors import BucketError, ChangedObjectError
from testbed.s3_server import Put, PutParts
from tests.hvd_elastic.stores.bucket.test_signed_reads import KEYS, LEFT_TO_BOTO3


@pytest.fixture
def plain(endpoint: str, bucket: str) -> ObjectSource:
    return ObjectSource(f"s3://{bucket}/set", endpoint=endpoint, threads=2)


@pytest.fixture
def with_boto3(endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> ObjectSource:
    monkeypatch.setenv(LEFT_TO_BOTO3, "false")
    source = ObjectSource(f"s3://{bucket}/set", endpoint=endpoint, threads=2)
    monkeypatch.undo()
    return source


def test_both_list_the_same(plain: ObjectSource, with_boto3: ObjectSource, put: Put, client: Any, bucket: str) -> None:
    for key in (*KEYS, "", "folder/", "folder/a", "control\x01", "<&>\"'", "plus+ space"):
        put(key, key.encode())
    client.put_object(Bucket=bucket, Key="settlement", Body=b"is not below the prefix")
    found = list(plain.objects())
    assert plain._opened is None
    assert sorted(found) == sorted(with_boto3.objects())
    assert with_boto3._opened is not None
    assert {one.key for one in found} >= {*KEYS, "folder/", "folder/a", "control\x01"}


def test_a_listing_goes_on_over_pages(plain: ObjectSource, put: Put) -> None:
    for number in range(1001):
        put(f"{number:04}", b"")
    assert [one.key for one in plain.objects()] == [f"{number:04}" for number in range(1001)]
    assert plain._opened is None


def test_both_describe_the_same(
    plain: ObjectSource, with_boto3: ObjectSource, put: Put, put_parts: PutParts, client: Any, bucket: str
) -> None:
    pieces = [os.urandom(5 << 20), os.urandom(1000)]
    put_parts("parts and more", pieces)
    client.put_object(Bucket=bucket, Key="set/crc32", Body=b"x" * 9, ChecksumAlgorithm="CRC32")
    put("plain", b"y")
    for one in plain.objects():
        stored, other = plain.stored_checksum(one), with_boto3.stored_checksum(one)
        assert (stored and (stored.value, stored.parts)) == (other and (other.value, other.parts))
        assert plain.part_bytes(one) == with_boto3.part_bytes(one)
        assert (stored is not None) == (one.key != "parts and more") or one.key == "plain"
    assert plain._opened is None


@pytest.mark.parametrize("by_key", ["aws:kms", "aws:kms:dsse"])
def test_an_object_that_is_encrypted_with_a_key_has_no_etag_of_its_bytes(
    plain: ObjectSource, client: Any, bucket: str, by_key: str
) -> None:
    client.put_object(Bucket=bucket, Key="set/a", Body=b"secret", ServerSideEncryption=by_key)
    (one,) = plain.objects()
    assert (plain.part_bytes(one), plain.part_bytes(one, for_etag=False)) == (None, 6)
    assert plain._opened is None


@pytest.mark.parametrize("replaced", [True, False])
def test_what_has_changed_since_it_was_listed_is_an_error(
    plain: ObjectSource, put: Put, client: Any, bucket: str, replaced: bool
) -> None:
    put("a", b"1")
    (one,) = plain.objects()
    put("a", b"2") if replaced else client.delete_object(Bucket=bucket, Key="set/a")
    with pytest.raises(ChangedObjectError):
        plain.stored_checksum(one)


def test_a_bucket_that_is_not_there_is_boto3s_error(endpoint: str) -> None:
    source = ObjectSource("s3://no-such-bucket-here/set", endpoint=endpoint, threads=1)
    with pytest.raises(BucketError, match="NoSuchBucket"):
        list(source.objects())


@pytest.mark.core
@pytest.mark.process
def test_a_copier_starts_without_boto3(endpoint: str, bucket: str, client: Any, tmp_path: Path) -> None:
    """boto3 takes half a second of CPU to import."""
    for number in range(3):
        client.put_object(Bucket=bucket, Key=f"set/{number}", Body=os.urandom(100), ChecksumAlgorithm="CRC32")
    script = (
        "import sys, pathlib; from hvd_elastic.staging import stage\n"
        "stage(sys.argv[1], pathlib.Path(sys.argv[2]), endpoint=sys.argv[3], range_bytes=30)\n"
        "heavy = {'boto3', 'botocore', 'torch', 'rich', 'pydantic', 'kubernetes'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script, f"s3://{bucket}/set", str(tmp_path), endpoint], check=True)
    assert len([*tmp_path.glob("[0-9]")]) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b"<ListBucketResult><Contents><Key>a</Key><Size>one</Size><ETag>1</ETag></Contents></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>",
    ],
)
def test_what_is_no_listing_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"listing|object|literal"):
        ListedPage.of_xml(body)


def test_a_listing() -> None:
    body = (
        b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType>'
        b"<IsTruncated>true</IsTruncated><NextContinuationToken>t=</NextContinuationToken>"
        b"<Contents><Key>a%2Bb+c</Key><Size>7</Size><ETag>&quot;1-2&quot;</ETag></Contents></ListBucketResult>"
    )
    one = SourceObject(key="a+b c", size_bytes=7, etag="1-2")
    assert ListedPage.of_xml(body) == ListedPage(objects=(one,), more="t=")
    assert ListedPage.of_xml(body.replace(b"url", b"")).objects[0].key == "a%2Bb+c"
