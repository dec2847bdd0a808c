"""What a verb gets of `--context`, `-n` and `--as`, and that the choice alone reads no kubeconfig."""

from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options, job_cluster_options
from hvd_elastic.mpijob.contract import ENV_NAMESPACE

_OF_JOBS = job_cluster_options(namespace_help="Where.", as_help="Who.")


@pytest.mark.parametrize("options", [cluster_options, _OF_JOBS])
@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        ((), {}, (None, None, None)),
        (("--context", "c", "-n", "team", "--as", "ann"), {}, ("c", "team", "ann")),
        ((), {ENV_NAMESPACE: "mine"}, (None, "mine", None)),
        (("-n", "team"), {ENV_NAMESPACE: "mine"}, (None, "team", None)),
    ],
)
def test_a_verb_gets_one_value_of_the_three_options(
    options: Callable[[Any], Any], words: tuple[str, ...], environment: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    told = []

    @click.command
    @click.option("--other", default=1)
    @options
    @click.argument("job")
    def verb(*, job: str, chosen: ChosenCluster, other: int) -> None:
        told.append((job, other, chosen))

    result = CliRunner(env={"KUBECONFIG": "/nowhere", **environment}).invoke(verb, ["bert", *words])
    assert result.exit_code == 0, result.output
    context, namespace, impersonate = expected
    assert told == [("bert", 1, ChosenCluster(context=context, namespace=namespace, impersonate=impersonate))]


def test_only_where_namespace_is_no_key_of_the_job_it_is_an_option() -> None:
    def flags(options: Callable[[Any], Any]) -> set[str]:
        command = click.command(options(lambda **_: None))
        return {name for parameter in command.params for name in parameter.opts}

    assert flags(cluster_options) - flags(_OF_JOBS) == {"--namespace"}
