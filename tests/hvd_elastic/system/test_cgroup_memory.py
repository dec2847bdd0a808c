"""The kernel's count of processes that it killed for want of memory, where it keeps one."""

from pathlib import Path

import pytest

from hvd_elastic.system.cgroup_memory import oom_kills

EVENTS = "low 0\nhigh 0\nmax 41\noom 3\noom_kill 2\noom_group_kill 0\n"


def machine(root: Path, groups: str, events: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for folder, text in events.items():
        (root / "sys/fs/cgroup" / folder).mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup" / folder / "memory.events").write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "events", "count"),
    [
        pytest.param("0::/\n", {"": EVENTS}, 2, id="a container"),
        pytest.param("0::/user.slice/a\n", {"user.slice/a": EVENTS}, 2, id="a session of a host"),
        pytest.param("4:memory:/pod\n0::/\n", {}, None, id="cgroup v1 beside v2"),
        pytest.param("4:memory:/pod\n", {"": EVENTS}, None, id="cgroup v1"),
        pytest.param("0::/\n", {"": "low 0\n"}, None, id="an old kernel"),
        pytest.param("0::/\n", {"": "oom_kill many\n"}, None, id="no number"),
    ],
)
def test_the_kernels_count(tmp_path: Path, groups: str, events: dict[str, str], count: int | None) -> None:
    assert oom_kills(machine(tmp_path, groups, events)) == count
