import yaml
from click.testing import CliRunner

from hvd_elastic.cli import cli

JOB = "name: a\nimage: b:1\ncommand: [python, train.py]\nworkers: {min: 1, max: 4, gpus: 1}\n"


def test_the_groups_of_a_job_and_of_its_flags() -> None:
    arguments = ["node-groups", "-", "--cloud", "eks", "--gpu-type", "t4"]
    done = CliRunner().invoke(cli, arguments, input=JOB, catch_exceptions=False)
    groups = yaml.safe_load(done.stdout)
    assert [group["role"] for group in groups] == ["launcher", "worker"]
    assert groups[1]["labels"] == {"k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"}
    names = CliRunner().invoke(cli, [*arguments, "-o", "name"], input=JOB)
    assert names.stdout.split() == ["launcher", "worker"]
