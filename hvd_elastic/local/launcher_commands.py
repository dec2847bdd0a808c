"""The launcher's command line for a job on this machine: `hvd-elastic launch`, or the stock `horovodrun`.

Both get the flags that `generate` gives them in a cluster, and neither uses ssh: `launch` supports local hosts, and
horovodrun finds a program named `ssh` first on its PATH that runs the command here, in the folder of the named host.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import ADOPT_FILE, ENV_RUN_DIR
from hvd_elastic.mpijob.description.job_spec import JobSpec, LauncherKind
from hvd_elastic.mpijob.manifests.launcher_pod import flags

BY_ADDRESS: Final = "by-address"
"""Folder of links from each host's address to its folder: horovodrun knows a host by its address alone."""

_ADOPT: Final = ("sh", "-c", f'exec "${ENV_RUN_DIR}/{ADOPT_FILE}" "$@"', ADOPT_FILE)
"""In a cluster the path is the same in every pod and is in the manifests. Here each host has a folder of its own."""

_SSH: Final = """\
#!/bin/sh
# Stands for ssh on a job's local hosts: `ssh [-o OPTION]... ADDRESS COMMAND` runs COMMAND here.
while [ "${{1#-}}" != "$1" ]; do shift 2; done
{run_dir}={hosts}/$1; shift
export {run_dir}
exec /bin/sh -c "$*"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherCommand:
    """A command line and its environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def launcher_command(
    spec: JobSpec, folder: Path, environment: Mapping[str, str], *, bare: bool = False
) -> LauncherCommand:
    """How to launch `spec` over the snapshot and the local hosts in `folder`.

    `bare`: each host starts the command directly, as under Horovod alone, instead of adopting a standby.
    """
    here = spec.model_copy(update={"network": spec.network.model_copy(update={"interface": "lo"})})
    launcher_flags = flags(here, str(folder))
    command = tuple(spec.command) if bare else (*_ADOPT, *spec.command)
    cli = (sys.executable, "-m", "hvd_elastic.cli")
    if spec.launcher.kind is LauncherKind.LAUNCH:
        argv = (*cli, "launch", *launcher_flags, "--local-hosts", str(folder), *command)
        return LauncherCommand(argv=argv, environment={**environment, ENV_RUN_DIR: str(folder)})
    path = os.pathsep.join((str(_write_ssh(folder)), environment.get("PATH", os.defpath)))
    program = (str(Path(sys.executable).parent / "horovodrun"),) if bare else (*cli, "horovodrun")
    argv = (*program, *launcher_flags, *command)
    return LauncherCommand(argv=argv, environment={**environment, "PATH": path})


def link_address(folder: Path, name: str, address: str) -> None:
    """Let horovodrun's stand-in for ssh find the folder of the host with this address."""
    link = folder / BY_ADDRESS / address
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(folder / name)


def _write_ssh(folder: Path) -> Path:
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    ssh = programs / "ssh"
    ssh.write_text(_SSH.format(run_dir=ENV_RUN_DIR, hosts=shlex.quote(str(folder / BY_ADDRESS))))
    ssh.chmod(0o755)
    return programs
