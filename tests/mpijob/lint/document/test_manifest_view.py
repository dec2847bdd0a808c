"""Paths, and reading what is not there."""

from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView, json_path


def test_json_paths() -> None:
    assert json_path(("spec", "a.b/c", 0, "it's")) == "$.spec['a.b/c'][0]['it\\'s']"


def test_a_missing_value_reads_as_none() -> None:
    assert ManifestView({"a": [1]}).get("a", "b").value is None
