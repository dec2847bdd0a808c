"""What the kernel says of this process's control group and its memory (cgroup v2)."""

from pathlib import Path


def oom_kills(root: Path = Path("/")) -> int | None:
    """How many processes of this process's cgroup the kernel has killed for want of memory. None: not known.

    It is `oom_kill` in `memory.events`, which the kernel counts before it kills
    (https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files). cgroup v1 has no such file.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        own = next(line.removeprefix("0::/") for line in groups if line.startswith("0::/"))
        events = (root / "sys/fs/cgroup" / own / "memory.events").read_text(encoding="utf-8").splitlines()
        return next(int(line.removeprefix("oom_kill ")) for line in events if line.startswith("oom_kill "))
    except (OSError, ValueError, StopIteration):
        return None
