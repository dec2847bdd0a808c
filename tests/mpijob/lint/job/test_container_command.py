"""Shells, wrappers and variables around a launcher."""

import pytest

from hvd_elastic.mpijob.lint.job.container_command import ShellWord, expand, unwrap
from hvd_elastic.mpijob.lint.job.launcher_command_line import PROGRAMS


def words(*texts: str) -> tuple[ShellWord, ...]:
    return tuple(ShellWord(text, ("command", index)) for index, text in enumerate(texts))


def unwrapped(*texts: str, **environment: str) -> list[str]:
    return [word.text for word in unwrap(expand(words(*texts), environment), environment, PROGRAMS).words]


@pytest.mark.parametrize(
    "command",
    [
        ("horovodrun", "-np", "2", "t"),
        ("sh", "-c", "horovodrun -np 2 t"),
        ("/bin/bash", "-lc", "horovodrun -np 2 t"),
        ("bash", "-euo", "pipefail", "-c", "horovodrun -np 2 t"),
        ("bash", "-c", "--", "horovodrun -np 2 t"),
        ("sh", "-c", "cd /x && exec horovodrun -np 2 t"),
        ("sh", "-c", "# first\nset -e\nhorovodrun \\\n  -np 2 \\\n  t\n"),
        ("sh", "-c", "horovodrun -np 2 t 2>&1 | tee log"),
        ("sh", "-c", "horovodrun -np 2 t > log; echo done"),
        ("env", "-u", "B", "A=1", "horovodrun", "-np", "2", "t"),
        ("tini", "--", "bash", "-c", "A=1 timeout -k 5 60 horovodrun -np '2' t"),
        ("bash", "-c", "sleep 5; bash -c 'exec horovodrun -np 2 t'"),
        ("horovodrun", "-np", "$(N)", "t"),
        ("sh", "-c", "horovodrun -np ${N} t"),
        ("sh", "-c", 'M=2; N=$N horovodrun -np "$N" t'),
    ],
)
def test_the_launcher_is_found(command: tuple[str, ...]) -> None:
    assert unwrapped(*command, N="2") == ["horovodrun", "-np", "2", "t"]


def test_what_cannot_be_known_stays_as_it_is() -> None:
    assert unwrapped("horovodrun", "-np", "$(UNKNOWN)", "$$(N)", N="2") == ["horovodrun", "-np", "$(UNKNOWN)", "$(N)"]
    assert unwrapped("sh", "-c", "horovodrun -np $(nproc) t")[:3] == ["horovodrun", "-np", "$(nproc)"]
    assert unwrapped("sh", "-c", "echo 'never closed") == ["echo", "'never", "closed"]
    assert unwrapped("sh", "/opt/start.sh") == ["sh", "/opt/start.sh"]
    assert unwrapped("sh", "-c") == ["sh", "-c"]
    assert unwrapped() == []
