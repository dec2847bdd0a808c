"""`hvd-elastic demo`."""

import json
import sys
from pathlib import Path

import click

from hvd_elastic.cli.standard_streams import lossy
from hvd_elastic.mpijob.contract import ENV_ENGINE, Engine


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of (Fashion-)MNIST's IDX files. Default: scikit-learn's digits.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("out/demo"),
    show_default=True,
    help="Folder for the report.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the made-up inference load.")
@click.option("--hosts", type=click.IntRange(2, 64), default=4, show_default=True, help="Number of local hosts.")
@click.option("--epochs", type=click.IntRange(1), default=20, show_default=True, help="Epochs of each training.")
@click.option(
    "--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Global batch size, over all workers."
)
@click.option(
    "--engine",
    type=click.Choice([engine.value for engine in Engine]),
    default=Engine.HOROVOD.value,
    envvar=ENV_ENGINE,
    show_default=True,
    help="What the processes train over. With torch nothing asks for Horovod, and stock horovodrun is left out.",
)
@click.option(
    "--stock/--no-stock", default=None, help="Also run stock horovodrun under the same load. Default: with Horovod."
)
def command(
    *,
    data: Path | None,
    output: Path,
    seed: int,
    hosts: int,
    epochs: int,
    batch_size: int,
    engine: str,
    stock: bool | None,
) -> None:
    """Train beside a made-up inference load on this machine, and report what the load cost.

    A small network trains on real images while inference takes hosts away and gives them back, by the same path as
    in a cluster: eligibility, snapshot, launcher. Then the same training runs undisturbed, and once more with stock
    horovodrun under the same load. Writes report.json, demo.svg and demo.png to the output folder.
    """
    from hvd_elastic.cli.clean_console import CleanConsole
    from hvd_elastic.local.demo.demo_data import idx_folder
    from hvd_elastic.local.demo.demo_report import as_data, draw, print_report
    from hvd_elastic.local.demo.demo_runs import UNDISTURBED, DemoSettings, run_demo
    from hvd_elastic.local.demo.display import Display
    from hvd_elastic.local.local_checks import check_output, check_packages

    chosen = Engine(engine)
    if stock and chosen is Engine.TORCH:
        raise click.UsageError("--stock is stock horovodrun, which knows Horovod alone: leave out --engine torch")
    stock = chosen is Engine.HOROVOD if stock is None else stock
    check_packages("matplotlib", "sklearn", engine=chosen)
    if data:
        idx_folder(data)
    settings = DemoSettings(
        data=data, output=output, seed=seed, hosts=hosts, epochs=epochs, batch_size=batch_size, engine=chosen
    )
    check_output(output)
    console = CleanConsole(lossy(sys.stdout))  # `| head` must not cost the report
    beside = ", and with stock horovodrun under the same load" if stock else ""
    console.print(
        "The same training: with hvd-elastic while inference takes hosts and gives them back, undisturbed"
        f"{beside}. All of it with its defaults takes some 100 s on two cores; the report comes last.",
        highlight=False,
    )
    with Display(console) as display:
        runs = run_demo(settings, display, stock=stock)
    files = draw([run for run in runs if run.title != UNDISTURBED], hosts=settings.hosts, folder=output)
    report = output / "report.json"
    report.write_text(json.dumps(as_data(runs), indent=2) + "\n")
    print_report(runs, console)
    console.print("written:", *map(str, (report, *files)), highlight=False)
