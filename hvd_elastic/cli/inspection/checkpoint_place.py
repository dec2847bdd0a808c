"""Where `checkpoints` reads: at a URL, or at that of a job in the cluster, by its name."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import unquote, urlencode

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.mpijob.contract import Exit, HvdElasticError

if TYPE_CHECKING:
    from hvd_elastic.mpijob.description.job_spec import JobSpec

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE: Final = "file://"


class NotHereError(HvdElasticError):
    """The checkpoints of a job cannot be read from here."""

    exit_code = Exit.BAD_INPUT


def place_argument(command: _Command) -> _Command:
    """Adds the argument URL|JOB, and the options of a cluster. The verb gets the URL as `url`."""

    @functools.wraps(command)
    def with_url(*, place: str, chosen: ChosenCluster, **parameters: Any) -> Any:
        return command(url=place if "/" in place else _url_of_job(place, chosen), **parameters)

    return cast("_Command", click.argument("place", metavar="URL|JOB")(cluster_options(with_url)))


def _url_of_job(name: str, chosen: ChosenCluster) -> str:
    from hvd_elastic.client.operations.submitted_job import find_submitted

    return readable_url(find_submitted(chosen.connect(), name).description)


def readable_url(spec: "JobSpec") -> str:
    """The URL of a job's checkpoints. Raises NotHereError if it has none, or they are in a folder of its pods."""
    from hvd_elastic.mpijob.description.mounts import mounts
    from hvd_elastic.mpijob.manifests.supporting.shared_storage import checkpoint_prefix

    if spec.checkpoint is None:
        raise NotHereError(f"{spec.name} has no `checkpoint`: its commits are in its workers' memory alone")
    url = checkpoint_prefix(spec)
    if not url.startswith(_FILE):
        options = {"account": spec.checkpoint.account, "endpoint": spec.checkpoint.endpoint}
        query = urlencode({name: value for name, value in options.items() if value}, safe=":/")
        return f"{url}?{query}" if query else url
    folder = Path(unquote(url.removeprefix(_FILE)))
    if folder.is_dir():
        return url
    claims = [mount.claim(spec) for mount in mounts(spec) if folder.is_relative_to(mount.path)]
    otherwise = f"; else mount the claim {claims[0]} in a pod of the image {spec.image}" if claims else ""
    raise NotHereError(
        f"the checkpoints of {spec.name} are in {folder} of its pods, which is not here. While a worker runs: kubectl "
        f"exec -n {spec.namespace} {spec.name}-worker-0 -- hvd-elastic checkpoints list {url}{otherwise}"
    )
