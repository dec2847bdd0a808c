"""Staging a data set, beside s5cmd, rclone and `aws s3 sync`, from one S3 server on this machine, in turns.

Each copies the same objects into an empty folder of its own, as a whole process from its start to its end: first many
small objects, then few large ones. Ours compares each byte to what the server says of the object (a small one's MD5, a
large one's CRC) and syncs the file system at the end; s5cmd does neither, so it is also measured with such a sync
behind it. The server is versitygw over a folder, because moto's would be measured in place of the copiers. It shares
the copiers' cores, and all of them share the disk with whatever else runs, so the CPU that a copier takes is the firmer
figure.

s5cmd, rclone and versitygw are built once, from the Go module proxy, and awscli is installed once, from PyPI, into
~/.cache/hvd-elastic. Without rclone or awscli the rest is measured.

    python -m benchmarks.staging [--small 10000] [--small-kib 32] [--large 4] [--large-mib 1024] [--repeats 3]

The defaults take 10 GiB of disk. `--small 3000 --large-mib 256` is done in a minute, most
of which is the copiers' start.
"""

import argparse
import hashlib
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value, spread, spread_columns

MIB = 1 << 20
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
AWSCLI = "awscli==1.46.2"
MODULES = Path(__file__).parent
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench-secret",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}
LONG_BYTES = 300 * MIB
"""What the defaults have at least."""
RATE = "rate beside s5cmd's"
KEEP_BYTES = 1 << 30
"""Copies of data sets up to this size are removed only after all turns: ext4 looks long for an inode right after many
files were removed, which cost whoever came next a third of its CPU."""
OURS, THEIRS, THEIRS_SYNCED, RCLONE = "hvd-elastic stage-copier", "s5cmd", "s5cmd, then sync", "rclone"
AIMS = {THEIRS: 0.6, RCLONE: 0.8}
"""Shares of their rates."""

Command = Callable[[str, Path, str], Sequence[str]]
"""From the URL of a prefix, a folder and the server's URL to the words of a copier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Objects below a prefix."""

    name: str
    objects: int
    size_bytes: int
    """Of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One copy by one copier."""

    seconds: float
    cpu_seconds: float
    """Of the copier alone."""


def ours(url: str, folder: Path, endpoint: str) -> Sequence[str]:
    return [sys.executable, "-m", "hvd_elastic.cli", "stage-copier",
            "--source", url, "--into", str(folder), "--endpoint", endpoint]  # fmt: skip


def s5cmd(program: Path, url: str, folder: Path, endpoint: str) -> Sequence[str]:
    return [str(program), "--endpoint-url", endpoint, "--log", "error", "cp", f"{url}/*", f"{folder}/"]


def synced(command: Command, url: str, folder: Path, endpoint: str) -> Sequence[str]:
    """The same, and then what `stage-copier` does before it says that all is there."""
    return ["sh", "-c", '"$@" && sync -f "$0"', str(folder), *command(url, folder, endpoint)]


def rclone(program: str, url: str, folder: Path, endpoint: str) -> Sequence[str]:
    remote = f":s3,provider=Other,env_auth=true,endpoint='{endpoint}':{url.removeprefix('s3://')}"
    return [program, "copy", "--transfers", "16", remote, str(folder)]


def aws_sync(program: Path, url: str, folder: Path, endpoint: str) -> Sequence[str]:
    return [str(program), "s3", "sync", "--only-show-errors", "--endpoint-url", endpoint, url, str(folder)]


def copiers() -> Mapping[str, Command]:
    """Raises CalledProcessError and OSError if s5cmd cannot be built."""
    theirs = partial(s5cmd, built("s5cmd", "github.com/peak/s5cmd/v2"))
    found: dict[str, Command] = {OURS: ours, THEIRS: theirs, THEIRS_SYNCED: partial(synced, theirs)}
    try:
        found[RCLONE] = partial(rclone, str(built("rclone", ".")))
        found["aws s3 sync"] = partial(aws_sync, installed_awscli())
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"not all copiers could be had: {error}")
    return found


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hvd-elastic"


def built(name: str, package: str) -> Path:
    """The program of a package, as the Go module in the folder `name` pins it."""
    module = MODULES / name
    key = hashlib.sha256(b"".join((module / each).read_bytes() for each in ("go.mod", "go.sum"))).hexdigest()[:16]
    program = cache_folder() / "go" / f"{name}-{key}"
    if not program.exists():
        subprocess.run(["go", "build", "-o", str(program), package], cwd=module, check=True)
    return program


def installed_awscli() -> Path:
    folder = cache_folder() / "python" / AWSCLI.replace("==", "-")
    program = folder / "bin" / "aws"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", AWSCLI], check=True)
    return program


def built_versitygw() -> Path:
    folder = cache_folder() / "go" / f"versitygw-{VERSITYGW.rpartition('@')[2]}"
    program = folder / "versitygw"
    if not program.exists():
        subprocess.run(["go", "install", VERSITYGW], env={**os.environ, "GOBIN": str(folder)}, check=True)
    return program


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server over an empty folder, and its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    keys = ["--access", CREDENTIALS["AWS_ACCESS_KEY_ID"], "--secret", CREDENTIALS["AWS_SECRET_ACCESS_KEY"]]
    words = [str(built_versitygw()), "--port", f"127.0.0.1:{port}", *keys, "--quiet", "--keep-alive"]
    with subprocess.Popen([*words, "posix", str(folder)], stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not answers(port):
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def fill(endpoint: str, data: DataSet) -> None:
    """Put the objects: large ones as multipart uploads, as every tool uploads them."""
    import boto3
    from boto3.s3.transfer import TransferConfig

    client = boto3.client("s3", endpoint_url=endpoint)
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(data.size_bytes))
        file.flush()

        def put(number: int) -> None:
            key = f"{data.name}/{number % 10}/{number:06}.bin"
            client.upload_file(file.name, "bench", key, Config=TransferConfig(use_threads=False))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(put, range(data.objects)))


def copy(command: Sequence[str], folder: Path, data: DataSet) -> Turn:
    """Run one copier to its end. Raises CalledProcessError, and RuntimeError if it has not copied everything."""
    os.sync()  # else who syncs waits for what the copier before has left to be written
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    files = [path.stat().st_size for path in folder.rglob("*.bin")]
    if files != [data.size_bytes] * data.objects:
        raise RuntimeError(f"{command[0]} copied {len(files)} of {data.objects} objects")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Turn(seconds=seconds, cpu_seconds=cpu)


def compare(found: Mapping[str, Command], endpoint: str, data: DataSet, *, repeats: int, scratch: Path) -> Table:
    """Copy one data set with each copier in turns."""
    fill(endpoint, data)
    before = os.getloadavg()[0]
    turns: dict[str, list[Turn]] = {name: [] for name in found}
    copies = scratch / "copies"
    for repeat in range(repeats):
        order = list(found.items())
        for name, command in order[repeat % len(order) :] + order[: repeat % len(order)]:
            folder = copies / f"{repeat}-{name.replace(' ', '-')}"
            folder.mkdir(parents=True)
            turns[name].append(copy(command(f"s3://bench/{data.name}", folder, endpoint), folder, data))
            if data.objects * data.size_bytes > KEEP_BYTES:
                shutil.rmtree(folder)
    shutil.rmtree(copies)
    load = f"Load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after. "
    return table(data, turns, load + verdict(turns))


def table(data: DataSet, turns: Mapping[str, Sequence[Turn]], note: str) -> Table:
    """The turns of each copier, and their medians beside those of s5cmd."""
    return Table(
        name=f"staging-{data.name}",
        title=f"Staging {data.objects} objects of {data.size_bytes / MIB:.4g} MiB",
        columns=(
            Column(title="copier"),
            Column(title="turns"),
            *spread_columns("seconds", format=".2f"),
            Column(title="objects/s", format=".0f"),
            Column(title="MiB/s", format=".0f"),
            Column(title="CPU seconds, median", format=".2f"),
            Column(title=RATE, format=".0%"),
            Column(title="CPU beside s5cmd's", format=".0%"),
        ),
        rows=[row(name, done, turns[THEIRS], data) for name, done in turns.items()],
        note=note,
    )


def rate_aim(compared: Table, data: DataSet, other: str) -> Aim:
    """The aim is for data whose staging takes longer than the start of a Python, as by the defaults."""
    is_short = data.objects * data.size_bytes < LONG_BYTES
    short = "; of so little data most of the time is the start of a Python" if is_short else ""
    mine, theirs = compared.figures(RATE, rows=(OURS, other))
    return Aim(
        what=f"rate of staging {data.name} objects, as a share of {other}'s",
        bound=AIMS[other],
        measured=mine / theirs,
        is_least=True,
        format=".0%",
        reason=f"s5cmd neither checks what it has read nor syncs the disk{short}",
    )


def row(name: str, turns: Sequence[Turn], theirs: Sequence[Turn], data: DataSet) -> list[Value]:
    seconds, middle, cpu = [one.seconds for one in turns], median_seconds(turns), median_cpu(turns)
    return [
        name,
        len(turns),
        *spread(seconds),
        data.objects / middle,
        data.objects * data.size_bytes / MIB / middle,
        cpu,
        median_seconds(theirs) / middle,
        cpu / median_cpu(theirs),
    ]


def verdict(turns: Mapping[str, Sequence[Turn]]) -> str:
    mine, cpu = median_seconds(turns[OURS]), median_cpu(turns[OURS])
    others = "; ".join(
        f"{name}: {median_seconds(theirs) / mine:.0%} of its rate, {cpu / median_cpu(theirs):.0%} of its CPU"
        for name, theirs in turns.items()
        if name != OURS
    )
    return f"{OURS} beside {others}."


def median_seconds(turns: Sequence[Turn]) -> float:
    return statistics.median(one.seconds for one in turns)


def median_cpu(turns: Sequence[Turn]) -> float:
    return statistics.median(one.cpu_seconds for one in turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", type=int, default=10000, help="objects")
    parser.add_argument("--small-kib", type=int, default=32)
    parser.add_argument("--large", type=int, default=4, help="objects")
    parser.add_argument("--large-mib", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    try:
        found = copiers()
        built_versitygw()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"s5cmd and the S3 server are built from their Go modules, which failed: {error}")
        return
    os.environ.update(CREDENTIALS)
    record = Record(name="staging", question="How fast is a data set staged, beside s5cmd?")
    with tempfile.TemporaryDirectory(prefix="bench-staging-") as name, server(Path(name) / "store") as endpoint:
        import boto3

        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="bench")
        for data in (
            DataSet(name="small", objects=given.small, size_bytes=given.small_kib << 10),
            DataSet(name="large", objects=given.large, size_bytes=given.large_mib << 20),
        ):
            compared = compare(found, endpoint, data, repeats=given.repeats, scratch=Path(name))
            record.add(compared)
            for other in filter(found.__contains__, AIMS):
                record.promise(rate_aim(compared, data, other))
    record.write()


if __name__ == "__main__":
    main()
