from pathlib import Path

from hvd_elastic.system.job_key import NO_KEY, bearer_word, is_same, new_nonce, request_key, sign


def test_a_job_knows_its_own_requests_and_no_others(tmp_path: Path) -> None:
    for name in ("own", "another"):
        (tmp_path / name).write_text(f"the key of {name}")
    own, another, none = (request_key(tmp_path / name) for name in ("own", "another", "none"))
    assert none == NO_KEY == bearer_word(tmp_path / "none")
    nonce, request = new_nonce(), "checkpoint now"
    known = sign(own, nonce, request)
    assert is_same(sign(own, nonce, request), known)
    strangers = (sign(another, nonce, request), sign(own, new_nonce(), request), sign(own, nonce, "leave "))
    assert not any(is_same(word, known) for word in (*strangers, own, none, "", known[1:], known.upper(), "ä"))
    assert sign(none, nonce, request) == NO_KEY
    assert "the key" not in own


def test_the_word_of_0_1_signs_nothing(tmp_path: Path) -> None:
    """Whoever got it from a sidecar of 0.1 cannot answer a challenge with it."""
    (tmp_path / "own").write_text("the key")
    assert bearer_word(tmp_path / "own") != request_key(tmp_path / "own")
