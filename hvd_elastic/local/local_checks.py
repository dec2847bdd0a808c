"""What must be true on this machine before a job's first process is started."""

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hvd_elastic.horovod.wheel_build import is_installed
from hvd_elastic.local.local_environment import local_environment
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem


def local_problems(spec: JobSpec) -> list[Problem]:
    """Everything that `spec` needs and this machine lacks."""
    return [*_program(spec), *_folders(spec), *_missing_packages()]


def check_packages(*more: str) -> None:
    """Raises InvalidInputError with what is not installed of the training packages and `more` (of the extra `demo`)."""
    if problems := list(_missing_packages(*more)):
        raise InvalidInputError(problems)


def _program(spec: JobSpec) -> Iterator[Problem]:
    path = local_environment(spec)["PATH"]
    folder = Path(spec.workdir or ".")
    program, *arguments = spec.command
    if not (shutil.which(program, path=path) or (folder / program).exists()):
        yield Problem(
            path="command[0]", value=program, what="is not a program here", way_out="name one on the PATH, or its file"
        )
    script = next((argument for argument in arguments if not argument.startswith("-")), None)
    is_python = Path(program).name.startswith("python") and not {"-m", "-c"} & set(arguments)
    if is_python and script and not (folder / script).exists():
        where = f"command[{spec.command.index(script)}]"
        yield Problem(
            path=where, value=script, what=f"does not exist (in {folder.resolve()})", way_out="name the script"
        )


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
    if url and url.scheme == "file" and not Path(unquote(url.path, errors="surrogateescape")).parent.is_dir():
        way_out = f"create it, or pass --checkpoint {Path.cwd().as_uri()}/checkpoints"
        yield Problem(
            path="checkpoint.url", value=url.geturl(), what="is in a folder that does not exist", way_out=way_out
        )


def _missing_packages(*more: str) -> Iterator[Problem]:
    if find_spec("torch") is None:
        yield Problem(path="torch", value=None, what="is not installed", way_out="pip install 'hvd-elastic[train]'")
    elif not is_installed():
        yield Problem(path="horovod", value=None, what="is not installed", way_out="hvd-elastic install-horovod")
    for name in more:
        if find_spec(name) is None:
            yield Problem(path=name, value=None, what="is not installed", way_out="pip install 'hvd-elastic[demo]'")
