from pathlib import Path

from hvd_elastic.system.job_key import NO_KEY, is_believed, request_key


def test_a_job_believes_its_own_requests_and_no_others(tmp_path: Path) -> None:
    for name in ("own", "another"):
        (tmp_path / name).write_text(f"the key of {name}")
    own, another, none = (request_key(tmp_path / name) for name in ("own", "another", "none"))
    assert none == NO_KEY
    assert is_believed(own, own)
    assert not any(is_believed(word, own) for word in (another, none, "", own[1:], own.upper(), "ä"))
    assert all(is_believed(word, none) for word in (own, none, ""))
    assert "the key" not in own
