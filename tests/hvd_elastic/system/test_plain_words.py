"""One thing is not "1 things": numbers stand before plurals in `count_words` alone."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.system.plain_words import count_words, cut_middle, printable
from testbed.terminal import steering

ROOT = Path(__file__).parents[3]
ROOMS = ("hvd_elastic", "mpijob", "discovery", "trainer", "priorityclasses")
THINGS = [
    *("adapter", "batch", "class", "error", "evaluation", "event", "field", "finding", "GPU", "host", "job", "line"),
    *("node", "number", "object", "pod", "preemption", "process", "rank", "resize", "sample", "setting", "slot"),
    *("step", "warning", "worker"),
]
PLURAL = re.compile(
    rf"^ (?:more |other |literal |inference )?(?:{'|'.join(count_words(2, thing)[2:] for thing in THINGS)})\b"
)
OF_MANY = re.compile(r"\b(of|to|than the) $")
"""`1 of 3 workers`, `up to 3 workers`: the number is a bound."""
OTHERWISE = {
    "mpijob/lint/rules/storage_rules.py": "two workers and more share",
    "mpijob/lint/rules/launcher_rules.py": "fifty workers and more are many",
    "hvd_elastic/client/doctor/rehearsal_record.py": "a rehearsal has three workers",
    "hvd_elastic/client/sweep/grid.py": "above the most jobs of a sweep",
    "hvd_elastic/cli/decisions/choice_report.py": "one job has no number",
    "hvd_elastic/decide/simulate/choose/setting_grid.py": "above the most settings",
    "hvd_elastic/worker/early_exit.py": "who is left alone was one of several",
    "hvd_elastic/launcher/core/world_formation.py": "above the most worlds that fail",
    "hvd_elastic/horovod/patch_set.py": "one line is right",
    "trainer/data/loaders/library_stream.py": "one worker has nothing to divide",
    "trainer/data/progress.py": "`3 of 50`",
    "trainer/data/certified_pass.py": "`3 of 50`",
    "trainer/data/sample_certificate.py": "`3 of 50`",
}
"""Modules that never say it of one, and why."""


def test_one_thing_and_several() -> None:
    assert [count_words(1, "resize"), count_words(0, "resize"), count_words(2, "resize")] == [
        "1 resize",
        "0 resizes",
        "2 resizes",
    ]
    many = [count_words(2, thing) for thing in ("batch", "class", "entry", "epoch")]
    assert many == ["2 batches", "2 classes", "2 entries", "2 epochs"]


def test_what_is_submitted_and_applied_is_applied_in_the_same_way() -> None:
    """Without `--server-side` kubectl warns of what `submit` wrote."""
    told = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "hvd_elastic" / "cli").rglob("*.py")]
    lines = [line for path in told for line in path.read_text().splitlines() if "generate job.yaml | kubectl" in line]
    assert len(lines) >= 3
    assert [line for line in lines if "apply --server-side" not in line] == []


def test_a_long_reason_keeps_its_beginning_and_its_end() -> None:
    assert cut_middle("as it is", 8) == "as it is"
    cut = cut_middle("train-worker-2 waits: 0/2 nodes are available: 1 untolerated taint", 36)
    assert cut == "train-worker-2 w ... tolerated taint"


def test_what_steers_a_terminal_is_told_by_unicode_itself() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    cleaned = printable(everything, lines=True)
    assert [each for each, shown in zip(everything, cleaned, strict=True) if each != shown] == steering(everything)
    assert printable("a\tb\nc", lines=True) == "a\tb\nc"
    assert printable("a\tb\nc") == "a?b?c"


def told(source: str) -> Iterator[str]:
    """Values in f-strings before which no `of` stands, and after which a plural does. Those with a format are shares
    or sums, and constants are known.
    """
    strings = (node.values for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr))
    for parts in strings:
        for before, value, after in zip([ast.Constant(""), *parts], parts, parts[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            is_bound = isinstance(before, ast.Constant) and OF_MANY.search(str(before.value))
            name = ast.unparse(value.value)
            if PLURAL.match(str(after.value)) and not is_bound and not value.format_spec and not name.isupper():
                yield f"{{{name}}}{after.value!s}"


@pytest.mark.parametrize("room", ROOMS)
def test_no_number_stands_before_a_plural(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {one}"
        for path in sorted((ROOT / room).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in OTHERWISE and not any(parent.is_symlink() for parent in path.parents)
        for one in told(path.read_text())
    ]
    assert not found, "count_words knows one from several:\n" + "\n".join(found)


def test_the_look_finds_what_it_looks_for() -> None:
    assert list(told('f"{count} workers train"')) == ["{count} workers train"]
    assert not list(told('f"1 of {count} workers, {share:.1f} GPU-hours"'))
