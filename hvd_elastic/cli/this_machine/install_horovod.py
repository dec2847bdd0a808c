"""`hvd-elastic install-horovod`."""

from pathlib import Path

import click

from hvd_elastic.cli.output import say
from hvd_elastic.horovod import wheel_build


@click.command()
@click.option("--cache", type=click.Path(path_type=Path), help="Folder for built wheels. Default: the user's cache.")
@click.option("--wheel-only", is_flag=True, help="Build the wheel and print its path, install nothing.")
@click.option("--fetch-only", is_flag=True, help="Fetch what a first build needs, and stop. It needs no torch.")
@click.option("--unpatched", is_flag=True, help="Change nothing in Horovod but what it does not compile without.")
def command(cache: Path | None, *, wheel_only: bool, fetch_only: bool, unpatched: bool) -> None:
    """Build Horovod 0.28.1 for the installed torch, once, and install it.

    The source distribution on the package index does not compile against torch >= 2.1. This command checks its
    checksum, raises the C++ standard to what the installed torch asks for, and repairs what ends or stalls the
    survivors of a death (docs/training.md). It builds with Gloo, with NCCL if nvcc is found (on PATH, or in this
    environment: pip install 'cuda-toolkit[nvcc]' of the version that torch has), and with MPI if mpicxx and
    mpi.h are found. It keeps the wheel, so that the next environment gets it in a second.
    """
    cache = cache or wheel_build.default_cache()
    if fetch_only:
        if not wheel_build.has_wheels(cache):
            wheel_build.Sources.of_cache(cache, progress=say).fetch()
        return
    recipe = wheel_build.read_recipe()
    if unpatched:
        recipe = recipe.unpatched()
    built = wheel_build.wheel(recipe, cache, progress=say)
    if not wheel_only:
        wheel_build.install(built)
    click.echo(built)
