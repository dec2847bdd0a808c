"""The plugin that runs a failed test again, in sessions of its own."""

import json
from pathlib import Path

import pytest

from tests.runner import flaky

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
COUNTS = """
from pathlib import Path

def attempt(name):
    count = Path(name)
    count.write_text(count.read_text() + "." if count.exists() else ".")
    return len(count.read_text())
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.Pytester:
    """A folder for tests that count their attempts in files, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # Each of these sessions would import hypothesis anew.
    pytester.syspathinsert(ROOT)
    pytester.makepyfile(counts=COUNTS)
    pytester.syspathinsert()
    return pytester


def run(session: pytest.Pytester, *flags: str) -> pytest.RunResult:
    return session.runpytest_inprocess("-p", "tests.runner.flaky", "-p", "no:cacheprovider", *flags)


def kept() -> dict[str, list[str]]:
    history: dict[str, list[str]] = json.loads(flaky.history_file().read_text())
    return history


def test_a_test_that_fails_once_passes_and_its_failure_is_shown(session: pytest.Pytester) -> None:
    session.makepyfile("from counts import attempt\ndef test_a():\n    assert attempt('a') > 1, 'the first time'\n")
    done = run(session)
    done.assert_outcomes(passed=1)
    assert done.ret == pytest.ExitCode.OK
    done.stdout.fnmatch_lines(["*passed only the second time*", "*::test_a", "*the first time*"])
    (runs,) = kept().values()
    assert runs == ["failed"]


def test_one_that_needs_it_twice_within_ten_runs_fails_the_session(session: pytest.Pytester) -> None:
    session.makepyfile("from counts import attempt\ndef test_a():\n    assert attempt('a') in {2, 3, 5}\n")
    assert run(session).ret == pytest.ExitCode.OK  # attempts 1 and 2
    assert run(session).ret == pytest.ExitCode.OK  # attempt 3
    done = run(session)  # attempts 4 and 5
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["FAILED *::test_a: it failed at first in an earlier run as well*"])
    (runs,) = kept().values()
    assert runs == ["failed", "passed", "failed"]


def test_one_that_fails_both_times_fails_and_is_no_part_of_the_history(session: pytest.Pytester) -> None:
    session.makepyfile("from counts import attempt\ndef test_a():\n    assert attempt('a') < 0\n")
    done = run(session)
    done.assert_outcomes(failed=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert Path("a").read_text() == "..", "it had two attempts"
    assert kept() == {}


def test_a_fixture_of_the_module_that_fails_is_made_again_and_one_of_the_session_stays(
    session: pytest.Pytester,
) -> None:
    session.makepyfile(
        """
        import pytest
        from counts import attempt

        @pytest.fixture(scope="session")
        def cluster():
            yield attempt("cluster")
            attempt("down")

        @pytest.fixture(scope="module")
        def job(cluster):
            assert attempt("job") > 1
            return "job"

        def test_a(job):
            assert job == "job"

        def test_b(job, cluster):
            assert attempt("b") == 1
            assert cluster == 1
        """
    )
    run(session).assert_outcomes(passed=2)
    assert [Path(name).read_text() for name in ("cluster", "job", "b", "down")] == [".", "..", ".", "."]


def test_a_failing_teardown_counts_too(session: pytest.Pytester) -> None:
    session.makepyfile(
        """
        import pytest
        from counts import attempt

        @pytest.fixture
        def job():
            yield
            assert attempt("teardown") > 1

        def test_a(job):
            attempt("a")
        """
    )
    run(session).assert_outcomes(passed=1)
    assert Path("a").read_text() == ".."


def test_skipped_tests_leave_no_trace(session: pytest.Pytester) -> None:
    session.makepyfile("import pytest\ndef test_a():\n    pytest.skip('not here')\n")
    run(session).assert_outcomes(skipped=1)
    assert kept() == {}


def test_workers_of_their_own_histories_are_refused(session: pytest.Pytester) -> None:
    session.makepyfile("def test_a():\n    pass\n")
    done = run(session, "-p", "xdist", "-n", "2")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*run it without -n*"])


def test_ten_runs_of_each_test_are_kept() -> None:
    history: flaky.History = {"a": ["failed"], "b": ["failed"]}
    for _ in range(flaky.RUNS_KEPT):
        assert flaky.repeated(history, ["a"]) == ["a"]
        history = flaky.extended(history, ["a"], [])
    assert flaky.repeated(history, ["a", "b"]) == ["b"]
    assert history == {"a": ["passed"] * flaky.RUNS_KEPT, "b": ["failed"]}
