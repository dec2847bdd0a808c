"""`hvd-elastic schema`: the JSON Schema from which editors complete a job description."""

import click

from hvd_elastic.system.plain_words import printable_json


@click.command
def command() -> None:
    """Print the JSON Schema of a job description.

    An editor with YAML support uses the schema that the first line of a file names:
    # yaml-language-server: $schema=job.schema.json
    """
    from hvd_elastic.mpijob.description.json_schema import schema

    click.echo(printable_json(schema(), indent=2))
