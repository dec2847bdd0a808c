"""`hvd-elastic schema`: what editors complete a job description from."""

import json

import click


@click.command
def command() -> None:
    """Print the JSON Schema of a job description.

    An editor with YAML support reads it from the first line of a file:
    # yaml-language-server: $schema=job.schema.json
    """
    from hvd_elastic.mpijob.description.json_schema import schema

    click.echo(json.dumps(schema(), indent=2, ensure_ascii=False))
