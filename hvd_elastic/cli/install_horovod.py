"""`hvd-elastic install-horovod`."""

from pathlib import Path

import click

from hvd_elastic import horovod_build


@click.command()
@click.option("--cache", type=click.Path(path_type=Path), help="Folder for built wheels. Default: the user's cache.")
@click.option("--wheel-only", is_flag=True, help="Build the wheel and print its path, install nothing.")
def command(cache: Path | None, *, wheel_only: bool) -> None:
    """Build Horovod 0.28.1 for the installed torch, once, and install it.

    The source distribution on the package index does not compile against torch >= 2.1. This command checks its
    checksum, raises the C++ standard to what the installed torch asks for, and repairs what ends or stalls the
    survivors of a death (docs/training.md). It builds with Gloo, with NCCL if nvcc is found, and with MPI if mpicxx is
    found. It keeps the wheel, so that the next environment gets it in a second.
    """

    def progress(line: str) -> None:
        click.echo(line, err=True)

    built = horovod_build.wheel(horovod_build.read_recipe(), cache or horovod_build.default_cache(), progress=progress)
    if not wheel_only:
        horovod_build.install(built)
    click.echo(built)
