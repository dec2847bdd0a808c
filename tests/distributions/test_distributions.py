"""What is made of the commands' output, and what the documentation says of it."""

from pathlib import Path

import pytest

from testbed.debian_root import DebianRoot
from tests.distributions import outcome_table
from tests.distributions.first_commands import PROJECT, CommandOutcome, ReleaseOutcome, summary_of

PAGE = (PROJECT / "docs" / "tested-versions.md").read_text(encoding="utf-8")


def outcome(suite: str, *, exit_code: int = 0, summary: str = "") -> ReleaseOutcome:
    command = CommandOutcome(command="make test", exit_code=exit_code, seconds=90, summary=summary, log=Path("log"))
    return ReleaseOutcome(suite=suite, python="3.13.5", compiler="14.2.0", commands=(command,))


@pytest.mark.parametrize(
    ("output", "summary"),
    [
        ("all done\n", ""),
        ("==== 12 passed in 3.01s ====\n", "12 passed"),
        ("= 1 failed, 5 passed, 2 skipped in 400.10s (0:06:40) =\n", "1 failed, 5 passed, 2 skipped"),
        ("compiles with g++-11 11.3.0, clang++ 14.0.6\n", "g++-11 11.3.0, clang++ 14.0.6"),
        ("3 passed in 1.00s\nmore\n=== 4 passed, 1 skipped in 2.50s ===\n", "3 passed + 4 passed, 1 skipped"),
    ],
)
def test_what_a_command_tells_of_itself(output: str, summary: str) -> None:
    assert summary_of(output) == summary


def test_a_row_says_what_passed_and_what_did_not() -> None:
    outcomes = [outcome("trixie", summary="5 passed"), outcome("bookworm", exit_code=2, summary="1 failed")]
    table = outcome_table.rendered(outcomes, ran="Commit abc:")
    assert "| Debian 13 | 3.13.5 | 14.2.0 | passes in 1.5 min: 5 passed |" in table
    assert "| Debian 12 | 3.13.5 | 14.2.0 | **exit code 2** in 1.5 min: 1 failed |" in table
    assert [one.passed for one in outcomes] == [True, False]


def test_the_table_takes_the_place_of_the_last_one() -> None:
    page = f"before\n\n{outcome_table.BEGIN}\nold\n{outcome_table.END}\nafter\n"
    once = outcome_table.written_into(page, "new")
    assert once == f"before\n\n{outcome_table.BEGIN}\n\nnew\n\n{outcome_table.END}\nafter\n"
    assert outcome_table.written_into(once, "new") == once
    with pytest.raises(ValueError, match="0 places"):
        outcome_table.written_into("no place", "new")


def test_the_page_has_a_place_for_the_table() -> None:
    assert "\n\nnew\n\n" in outcome_table.written_into(PAGE, "new")


def test_a_release_is_given_what_reaches_an_index_and_no_path_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "own.pem").touch()
    for name in ("PIP_CERT", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, f"/etc/{'own' if name == 'PIP_CERT' else 'another'}.pem")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("PYTHONPATH", "/etc")
    variables = DebianRoot(folder=tmp_path).environment()
    assert variables["PIP_CERT"] == "/etc/own.pem"
    assert variables["https_proxy"] == "http://proxy.example:3128"
    assert not {"SSL_CERT_FILE", "PYTHONPATH"} & variables.keys()
