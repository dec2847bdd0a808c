"""What must be true on this machine before a job's first process is started."""

import errno
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from hvd_elastic.horovod.wheel_build import is_installed
from hvd_elastic.local.local_environment import local_environment
from hvd_elastic.mpijob.contract import Engine
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.trainer.elastic.world.host_name import lookup_error
from hvd_elastic.worker.standby.program import Program, read_python_arguments

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def local_problems(spec: JobSpec) -> list[Problem]:
    """Everything that `spec` needs and this machine lacks."""
    if current_folder := [*_current_folder()]:
        return current_folder
    named = [*_host_name()] if spec.engine is Engine.HOROVOD else []
    return [*_program(spec), *_folders(spec), *named, *_missing_packages(engine=spec.engine)]


def check_packages(*more: str, engine: Engine = Engine.HOROVOD) -> None:
    """Raises InvalidInputError with what is not installed of the training packages and `more` (of the extra `demo`)."""
    if problems := list(_missing_packages(*more, engine=engine)):
        raise InvalidInputError(problems)


def check_output(folder: Path) -> None:
    """Make the folder of results. Raises InvalidInputError if it cannot be made, or nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        error = write_error(folder)
    except OSError as failure:
        error = failure.strerror or str(failure)
    if error:
        what, way_out = f"cannot be written ({error})", "name a folder that can: --output FOLDER"
        raise InvalidInputError([Problem(path="--output", value=str(folder), what=what, way_out=way_out)])


def _current_folder() -> Iterator[Problem]:
    try:
        Path.cwd()
    except OSError as error:
        what = f"cannot be used ({error.strerror})"
        yield Problem(path="the current folder", value=None, what=what, way_out="change to one that exists")


def _host_name() -> Iterator[Problem]:
    if (error := lookup_error("lo")) is not None:
        name = socket.gethostname()
        what = f"does not resolve ({error.strerror}), and Horovod needs it"
        way_out = f"add the line '127.0.1.1 {name}' to /etc/hosts"
        yield Problem(path="the name of this host", value=name, what=what, way_out=way_out)


def _program(spec: JobSpec) -> Iterator[Problem]:
    folder = Path(spec.workdir or ".")
    program, *arguments = spec.command
    # As execvp(3): a name without a slash is looked up on the PATH, and never in the folder.
    named = str(folder.resolve() / program) if os.sep in program else program
    if not shutil.which(named, path=local_environment(spec)["PATH"]):
        is_beside = (folder / program).is_file()
        yield Problem(
            path="command[0]",
            value=program,
            what="is a file that is not on the PATH or cannot be executed" if is_beside else "is not a program here",
            way_out=f"write `python {program}`" if is_beside else "name one on the PATH, or its file",
        )
    run = read_python_arguments(arguments) if Path(program).name.startswith("python") else None
    if isinstance(run, Program) and not run.is_module and not (folder / run.target).exists():
        where = f"command[{len(spec.command) - len(run.arguments) - 1}]"
        what = f"does not exist (in {folder.resolve()})"
        yield Problem(path=where, value=run.target, what=what, way_out="name the script")


def _folders(spec: JobSpec) -> Iterator[Problem]:
    if spec.workdir and not Path(spec.workdir).is_dir():
        yield Problem(
            path="workdir", value=spec.workdir, what="is not a folder here", way_out="remove it, or create the folder"
        )
    for key, volume in (("data", spec.data), ("output", spec.output)):
        if volume and not Path(volume.local or volume.mount).is_dir():
            way_out = f"set {key}.local (--{key}-local) to a folder of this machine"
            yield Problem(
                path=f"{key}.local" if volume.local else f"{key}.mount",
                value=volume.local or volume.mount,
                what="is not a folder here",
                way_out=way_out,
            )
    url = urlsplit(spec.checkpoint.url) if spec.checkpoint else None
    if url and url.scheme == "file":
        yield from _checkpoint(url.geturl(), Path(unquote(url.path, errors="surrogateescape")))


def _checkpoint(url: str, folder: Path) -> Iterator[Problem]:
    """What would keep the first save from being made, half a minute after the first step."""
    way_out = f"pass --checkpoint {Path.cwd().as_uri()}/checkpoints"
    if not folder.parent.is_dir():
        what, way_out = "is in a folder that does not exist", f"create it, or {way_out}"
        yield Problem(path="checkpoint.url", value=url, what=what, way_out=way_out)
    elif error := write_error(folder if folder.is_dir() else folder.parent):
        yield Problem(path="checkpoint.url", value=url, what=f"cannot be written ({error})", way_out=way_out)


def write_error(folder: Path) -> str:
    """Why no file can be made in `folder`; empty if one can. A full disk is not asked: it may have space by then."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return "" if error.errno in _FULL else error.strerror or str(error)
    return ""


def _missing_packages(*more: str, engine: Engine) -> Iterator[Problem]:
    if find_spec("torch") is None:
        yield Problem(path="torch", value=None, what="is not installed", way_out="pip install 'hvd-elastic[train]'")
    elif engine is Engine.HOROVOD and not is_installed():
        yield Problem(path="horovod", value=None, what="is not installed", way_out="hvd-elastic install-horovod")
    for name in more:
        if find_spec(name) is None:
            yield Problem(path=name, value=None, what="is not installed", way_out="pip install 'hvd-elastic[demo]'")
