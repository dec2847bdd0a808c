"""What a launcher has left of its end, as the sidecar beside it reads it."""

import json
from pathlib import Path

import pytest

from hvd_elastic.discovery.sidecar.launcher.launcher_pods import MAX_SENTENCE, LauncherWord, last_word
from hvd_elastic.mpijob.contract import MISTAKE_LINE, STATUS_FILE


def left(folder: Path, document: object) -> LauncherWord:
    (folder / STATUS_FILE).write_text(json.dumps(document))
    return last_word(folder)


def test_its_last_line_is_the_scripts(tmp_path: Path) -> None:
    reason = "rank 1 on w failed: exit code 1\nTraceback (most recent call last):\nValueError: sample 3 is broken\n"
    word = LauncherWord(exit_code=1, sentence="ValueError: sample 3 is broken")
    assert left(tmp_path, {"exit_code": 1, "reason": reason}) == word


def test_of_a_wrong_script_the_sentence_counts_that_says_what_is_wrong(tmp_path: Path) -> None:
    reason = f"rank 1 on w failed: exit code 79\nhvd-elastic: rank 1 has left\n{MISTAKE_LINE}"
    assert left(tmp_path, {"exit_code": 79, "reason": reason}).sentence == "rank 1 has left"


def test_a_strangers_words_are_bounded_and_clean(tmp_path: Path) -> None:
    sentence = left(tmp_path, {"exit_code": 1, "reason": "\x1b[2J" + "x" * 5000}).sentence
    assert sentence.isprintable()
    assert len(sentence) <= MAX_SENTENCE


@pytest.mark.parametrize(
    "document", [None, [], 7, {}, {"exit_code": "1"}, {"exit_code": None, "reason": 5}, {"reason": "x"}]
)
def test_what_it_never_writes_says_nothing(tmp_path: Path, document: object) -> None:
    assert left(tmp_path, document).exit_code is None


def test_a_plain_horovodrun_leaves_nothing(tmp_path: Path) -> None:
    assert last_word(tmp_path) == LauncherWord()
