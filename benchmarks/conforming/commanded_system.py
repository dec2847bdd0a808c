"""Any trainer, as the command of one of its hosts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.hosts import free_port, hosts, script_environment
from benchmarks.peers.local_system import EVENTS, LocalSystem, Places


def commanded_system(name: str, command: Sequence[str]) -> LocalSystem:
    """Run `command` on each host. README.md says what it finds in its environment."""

    @contextmanager
    def start(folder: Path, size: int) -> Iterator[Places]:
        shared, port = folder / "shared", free_port()
        shared.mkdir(parents=True)

        def host(place: int) -> tuple[Sequence[str], Mapping[str, str]]:
            known = {
                "EVENTS": folder / EVENTS,
                "FOLDER": shared,
                "HOST": place,
                "HOSTS": size,
                "PORT": port,
            }
            return command, script_environment() | {f"CONFORMANCE_{key}": str(value) for key, value in known.items()}

        with hosts(host, size, folder) as found:
            yield found

    return LocalSystem(name=name, start=start)
