import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from hvd_elastic.cli.submission.schema import command
from hvd_elastic.mpijob.description.json_schema import schema


def test_it_prints_the_schema() -> None:
    ran = CliRunner().invoke(command)
    assert ran.exit_code == 0
    assert json.loads(ran.output) == schema()


@pytest.mark.core
@pytest.mark.process
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['hvd-elastic', '--help']; from hvd_elastic import cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('pydantic', 'yaml', 'torch', 'kubernetes', 'boto3', 'jsonschema') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
