"""`hvd-elastic demo`."""

import json
from pathlib import Path

import click


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder of (Fashion-)MNIST's IDX files. Default: digits.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("out/demo"),
    show_default=True,
    help="Folder of the report.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the made-up inference load.")
@click.option("--hosts", type=click.IntRange(2, 64), default=4, show_default=True, help="Of this machine in miniature.")
@click.option("--epochs", type=click.IntRange(1), default=32, show_default=True, help="Of each training.")
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Over all workers.")
@click.option("--stock/--no-stock", default=True, help="Run stock horovodrun under the same load as well.")
def command(
    *, data: Path | None, output: Path, seed: int, hosts: int, epochs: int, batch_size: int, stock: bool
) -> None:
    """Train beside a made-up inference load on this machine, and report what it cost.

    A small network trains on real images while inference takes hosts away and gives them back, by the same path as
    in a cluster: eligibility, snapshot, launcher. Then the same training runs undisturbed, and with stock horovodrun
    under the same load. Writes report.json, demo.svg and demo.png to the output folder.
    """
    from rich.console import Console

    from hvd_elastic.demo.demo_data import idx_folder
    from hvd_elastic.demo.demo_picture import draw
    from hvd_elastic.demo.demo_report import as_data, print_report
    from hvd_elastic.demo.demo_runs import UNDISTURBED, DemoPlan, run_demo
    from hvd_elastic.demo.display import Display
    from hvd_elastic.local.local_checks import check_packages

    check_packages("matplotlib", "sklearn")
    if data:
        idx_folder(data)
    plan = DemoPlan(data=data, output=output, seed=seed, hosts=hosts, epochs=epochs, batch_size=batch_size)
    output.mkdir(parents=True, exist_ok=True)
    console = Console()
    with Display(console) as display:
        runs = run_demo(plan, display, stock=stock)
    print_report(runs, console)
    files = draw([run for run in runs if run.title != UNDISTURBED], hosts=plan.hosts, folder=output)
    report = output / "report.json"
    report.write_text(json.dumps(as_data(runs), indent=2) + "\n")
    console.print("written:", *map(str, (report, *files)), highlight=False)
