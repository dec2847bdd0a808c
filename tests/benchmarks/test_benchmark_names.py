"""What stands in benchmarks/ may not hide what is imported by its name."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_no_module_hides_one_of_the_standard_library() -> None:
    """Some are run as scripts, and Python looks into a script's folder first."""
    assert not {path.stem for path in BENCHMARKS.iterdir()} & sys.stdlib_module_names
