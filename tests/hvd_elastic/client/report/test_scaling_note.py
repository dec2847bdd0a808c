"""What the autoscaler writes on a job, read back and told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.report.scaling_note import ScalingNote
from hvd_elastic.mpijob.contract import ANNOTATION_AUTOSCALER

notes = st.builds(
    ScalingNote,
    unix=st.floats(0, 1e10),
    before=st.integers(1, 100),
    workers=st.integers(1, 100),
    reason=st.text(st.characters(exclude_categories=["C", "Z"]), max_size=100),
    ceiling=st.none() | st.integers(1, 100),
    speeds=st.dictionaries(st.integers(1, 99).map(str), st.tuples(st.floats(0.1, 1e6), st.integers(1, 50))),
)


def noted(text: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {ANNOTATION_AUTOSCALER: text}}}


@given(note=notes)
def test_what_is_written_is_read(note: ScalingNote) -> None:
    text = note.to_json()
    assert "\n" not in text
    assert ScalingNote.of_job(noted(text)) == note


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null", '{"unix": 1}', '{"unix": "x", "before": 1}'])
def test_what_somebody_else_wrote_is_no_note(text: str) -> None:
    assert ScalingNote.of_job(noted(text)) is None


def test_a_job_without_annotations_has_none() -> None:
    assert ScalingNote.of_job({"metadata": {}}) is None


def test_a_note_in_words() -> None:
    note = ScalingNote(unix=100.0, before=8, workers=6, reason="inference waits for 2 GPUs")
    assert note.words(112.0) == "from 8 to 6 workers 12 s ago: inference waits for 2 GPUs"
    bounded = ScalingNote(unix=100.0, before=2, workers=1, reason="GPUs have gone", ceiling=3)
    assert bounded.words(105.0) == "from 2 to 1 worker 5.0 s ago (at most 3: hvd-elastic scale): GPUs have gone"
