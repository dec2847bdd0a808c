"""A data set whose credentials are replaced while it is copied."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hvd_elastic.stores.data_set.object_source import ObjectSource
from hvd_elastic.stores.errors import StoreError
from testbed.s3_server import Put
from tests.trainer.checkpoint.proxy import proxy


def test_a_copy_goes_on_with_the_credentials_that_replace_its_own(
    endpoint: str, bucket: str, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a", b"data")
    file = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    file.write_text("[default]\naws_access_key_id = first\naws_secret_access_key = first\n")
    split = urlsplit(endpoint)
    with proxy((str(split.hostname), int(split.port or 0))) as (url, faults):
        faults.credential = "Credential=first"
        source = ObjectSource(f"s3://{bucket}/set", endpoint=url, threads=2, sleep=lambda _: None)
        (one,) = source.objects()
        faults.credential = "Credential=second"
        with pytest.raises(StoreError, match="ExpiredToken"):
            b"".join(source.pieces(one, 0, 4))
        file.write_text("[default]\naws_access_key_id = second\naws_secret_access_key = second\n")
        assert b"".join(source.pieces(one, 0, 4)) == b"data"
        assert source.digest_of(one)
        faults.credential = "Credential=third"
        file.write_text("[default]\naws_access_key_id = third\naws_secret_access_key = third\n")
        assert source.digest_of(one)
        source.close()
