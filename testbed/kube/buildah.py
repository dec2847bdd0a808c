"""buildah over one store in the cache: a build takes from its layers what has not changed."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.kube import folders
from testbed.kube.errors import ClusterError

_CHROOT = ("--isolation=chroot", "--network=host")
"""What runs where no container may be started."""


def call(*arguments: str) -> str:
    """Call buildah over the store; return its output. Raises ClusterError with the end of both outputs if it fails."""
    where = [f"--root={folders.cache()}/buildah", "--runroot=/run/hvd-elastic-buildah", "--storage-driver=overlay"]
    # Below TMPDIR is also what a build keeps between its runs (`RUN --mount=type=cache`): the compiled Horovod.
    temporary = folders.cache() / "buildah-tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return run_program("buildah", *where, *arguments, TMPDIR=str(temporary))


def run_program(*command: str, **environment: str) -> str:
    """Run a program; return its output. Raises ClusterError with the end of both outputs if it fails."""
    done = subprocess.run(command, env=os.environ | environment, text=True, capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def build(image: str, file: Path, *options: str) -> None:
    """Build what a Containerfile says, with its folder as the context, and name it."""
    call("bud", *_CHROOT, "--pull-never", *options, f"--tag={image}", f"--file={file}", str(file.parent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of an image, in which commands run one after another, as the image's user."""

    name: str

    def shell(self, script: str) -> str:
        """Run a shell script; return its output. Raises ClusterError with the end of both outputs if it fails."""
        # The name of a container is in no /etc/hosts here, as a pod's is, and Gloo asks for the address of its host.
        return call("run", *_CHROOT, "--hostname=localhost", self.name, "--", "sh", "-c", script)


@contextmanager
def container(image: str) -> Iterator[Container]:
    """Yield a container of `image`, which goes afterwards."""
    name = call("from", "--pull-never", image).strip()
    try:
        yield Container(name=name)
    finally:
        call("rm", name)
