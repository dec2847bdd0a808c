"""What `simulate` reads may be in a bucket."""

import json
import tempfile
from pathlib import Path

import pytest

from testbed.s3_server import Put
from tests.hvd_elastic.cli.decisions.test_simulate import simulate
from tests.hvd_elastic.cli.entry_point import Tool

__all__ = ["simulate"]

TRACE = b"trace,t_s,available\na,0,4\na,600,2\na,3600,4\n"


@pytest.fixture(autouse=True)
def none_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def test_traces_and_speeds_are_read_from_a_bucket(simulate: Tool, put: Put, bucket: str, endpoint: str) -> None:
    put("spot.csv", TRACE)
    put("speeds.csv", b"workers,steps_per_s\n1,1\n8,4\n")
    put("prices.yaml", b"currency: EUR\nmachines: {big: {gpus: 1, on_demand: 2}}\n")
    at = f"s3://{bucket}/set"
    words = ["--trace", f"{at}/spot.csv?endpoint={endpoint}", "--speed", f"train={at}/speeds.csv?endpoint={endpoint}"]
    words += ["--prices", f"{at}/prices.yaml?endpoint={endpoint}", "--machine", "big"]
    ran = simulate("job.yaml", *words, "--way", "ours", "-o", "json")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert "spot.csv a (numbers of nodes)" in data["day"]["source"]
    assert any("speeds.csv: sizes measured" in remark for remark in data["remarks"])
    assert data["currency"] == "EUR"
    alone = simulate("job.yaml", *words[:2], "--speed", words[3].removeprefix("train="), "--way", "ours", "-o", "json")
    assert any("speeds.csv: sizes measured" in remark for remark in json.loads(alone.out)["remarks"])


def test_what_others_publish_is_converted_where_it_is(
    simulate: Tool, client: object, bucket: str, endpoint: str
) -> None:
    published = b'{"metadata": {"gap_seconds": 600}, "data": [4, 2, 4]}'
    client.put_object(Bucket=bucket, Key="spot.json", Body=published)  # type: ignore[attr-defined]
    made = simulate("--convert", f"s3://{bucket}/spot.json?endpoint={endpoint}")
    assert made.out.splitlines()[:2] == ["trace,t_s,available", "spot,0,4"]


def test_a_file_url_is_a_file(simulate: Tool, tmp_path: Path) -> None:
    (tmp_path / "spot.csv").write_bytes(TRACE)
    assert simulate("job.yaml", "--trace", f"file://{tmp_path}/spot.csv", "--way", "ours").code == 0


@pytest.mark.parametrize("url", ["s3://{bucket}/none.csv?endpoint={endpoint}", "ftp://host/a.csv", "s3://{bucket}"])
def test_what_is_not_there_is_bad_input(simulate: Tool, bucket: str, endpoint: str, url: str) -> None:
    wrong = url.format(bucket=bucket, endpoint=endpoint)
    ran = simulate("job.yaml", "--trace", wrong)
    assert ran.code == 2
    assert wrong.partition("?")[0] in ran.err
