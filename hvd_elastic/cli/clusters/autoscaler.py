"""`hvd-elastic autoscaler`: what runs the autoscaler in a cluster, which is applied once."""

import click

from hvd_elastic.cli.object_names import checked_name, checked_place
from hvd_elastic.cli.output import Format, of_manifests, output_option, show
from hvd_elastic.decide.autoscale import controller_manifests


@click.command
@click.option("--image", required=True, help="This project's, or one built from it.")
@click.option("-n", "--namespace", default="default", show_default=True, callback=checked_name,
              help="Where it runs. It serves all jobs.")  # fmt: skip
@click.option("--buffer", metavar="NAMESPACE/NAME", callback=checked_place,
              help="A CapacityBuffer whose replicas follow the reserve, as for `hvd-elastic autoscale`.")  # fmt: skip
@output_option(Format.YAML, Format.JSON, Format.NAME, default=Format.YAML)
def command(*, image: str, namespace: str, buffer: str | None, output: Format) -> None:
    """Print the autoscaler's own manifests: an account, its rights, and a Deployment of two replicas.

    hvd-elastic autoscaler --image IMAGE | kubectl apply -f -
    """
    show(of_manifests(controller_manifests.manifests(image=image, namespace=namespace, buffer=buffer)), output)
