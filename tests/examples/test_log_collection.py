"""What a node's log collector makes of a job's lines, by the configuration in `examples/logs`.

The lines are made by the product's own formatters, in the form in which a container runtime stores them. fluent-bit
itself runs where it is installed: neither Debian nor PyPI has it.
"""

import json
import logging
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.client.logs.log_line import parse_line
from hvd_elastic.logs import JsonFormatter
from hvd_elastic.trainer.telemetry.json_logs import JsonLines

LOGS = Path(__file__).parents[2] / "examples" / "logs"
STAMP = "2026-11-23T07:22:14.123456789+00:00"


def record(name: str, message: str, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": name, "msg": message, "levelno": logging.INFO, "levelname": "INFO"})
    made.created = datetime.fromisoformat("2026-11-23T07:22:13.5+00:00").timestamp()
    made.__dict__["event_fields"] = fields
    return made


LAUNCHER = JsonFormatter().format(record("hvd_elastic.launcher.driver", "world 3 -> 2: b removed"))
STEP = JsonLines().format(record("hvd_elastic.trainer.telemetry.events", "step", rank=1, size=2, step=41, loss=0.5))
PRINTED = [
    LAUNCHER,
    f"[1]<stderr>:{STEP}",
    "[12]<stdout>:Epoch 3: loss 0.25 [50%]",
    "Sun Nov  2 21:05:53 2026[0]<stdout>:with a date",
    "[3]:mpirun names no stream",
    "[W socket.cpp:601] of torch in the launcher",
    '[0]<stdout>:{"loss": 0.5}',
    "",
]


def parsers() -> dict[str, dict[str, str]]:
    """The parsers of the example, by name."""
    text = (LOGS / "hvd-elastic-parsers.conf").read_text()
    sections = [dict(re.findall(r"^ +(\S+) +(.*)$", part, re.MULTILINE)) for part in text.split("[PARSER]")[1:]]
    return {section["Name"]: section for section in sections}


@pytest.mark.parametrize("line", PRINTED)
def test_the_rank_is_found_as_the_logs_verb_finds_it(line: str) -> None:
    pattern = parsers()["hvd_elastic_rank"]["Regex"].replace("(?<", "(?P<")
    found = re.match(pattern, line)
    known = parse_line(f"{STAMP} {line}".encode(), "launcher")
    taken = (int(found["worker_rank"]), found["worker_stream"] or "", found["log"]) if found else (None, "", line)
    assert taken == (known.rank, known.stream, known.text)


@pytest.mark.parametrize("line", [LAUNCHER, STEP])
def test_the_time_has_the_form_that_the_parser_names(line: str) -> None:
    parser = parsers()["hvd_elastic_json"]
    form = parser["Time_Format"].replace("%L", "%f")
    written = datetime.strptime(json.loads(line)[parser["Time_Key"]], form)  # noqa: DTZ007 - the format has %z
    assert written.timestamp() == 1795418533.5


def test_the_configurations_name_parsers_that_are_there() -> None:
    named = {
        name for file in LOGS.glob("*.conf") for name in re.findall(r"^ +Parser +(\S+)", file.read_text(), re.MULTILINE)
    }
    assert named == parsers().keys()


CONTAINER_INSIGHTS = """
[SERVICE]
    Flush        1
    Parsers_File hvd-elastic-parsers.conf

[INPUT]
    Name                tail
    Tag                 application.*
    Path                /var/log/containers/*.log
    multiline.parser    docker, cri
    Read_from_Head      On

@INCLUDE container-insights-filter.conf

[FILTER]
    Name                kubernetes
    Match               application.*
    Merge_Log           On
    Merge_Log_Key       log_processed
    K8S-Logging.Parser  On
    K8S-Logging.Exclude Off
    Dummy_Meta          On

[OUTPUT]
    Name                stdout
    Match               application.*
    Format              json_lines
"""
"""What Container Insights' `fluent-bit/fluent-bit.yaml` has for containers, as far as lines go: without an API server,
and with another output."""


def collected(folder: Path, configuration: str) -> list[dict[str, Any]]:
    """The records that fluent-bit makes of PRINTED, as a node stores it. `configuration`: the name of a file."""
    program = shutil.which("fluent-bit")
    if program is None:
        pytest.skip("fluent-bit is not installed, and neither Debian nor PyPI has it")
    containers = folder / "containers"
    containers.mkdir()
    stored = "".join(f"{STAMP} stderr F {line}\n" for line in PRINTED if line)
    (containers / "bert-launcher-x_ml_launcher-0123.log").write_text(stored)
    texts = {file.name: file.read_text() for file in LOGS.glob("*.conf")} | {"insights.conf": CONTAINER_INSIGHTS}
    for name, text in texts.items():
        placed = text.replace("/var/log/containers", str(containers))
        (folder / name).write_text(placed.replace("[INPUT]", "[INPUT]\n    Exit_On_Eof      On"))
    command = [program, "-q", "-c", str(folder / configuration)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(told) == len(PRINTED) - 1, done.stdout
    return told


def test_fluent_bit_takes_the_lines_apart(tmp_path: Path) -> None:
    told = collected(tmp_path, "fluent-bit.conf")
    launcher, step, epoch, dated, mpirun, torch, own = told
    assert (launcher["message"], launcher["level"]) == ("world 3 -> 2: b removed", "info")
    assert launcher["date"] == pytest.approx(1795418533.5)
    assert (step["worker_rank"], step["worker_stream"], step["step"], step["loss"]) == (1, "stderr", 41, 0.5)
    assert (epoch["worker_rank"], epoch["log"]) == (12, "Epoch 3: loss 0.25 [50%]")
    assert (dated["worker_rank"], dated["log"]) == (0, "with a date")
    assert (mpirun["worker_rank"], mpirun["log"]) == (3, "mpirun names no stream")
    assert torch["log"] == "[W socket.cpp:601] of torch in the launcher"
    assert (own["worker_rank"], own["loss"]) == (0, 0.5)


def test_container_insights_finds_json_behind_the_rank(tmp_path: Path) -> None:
    launcher, step, epoch, *_ = collected(tmp_path, "insights.conf")
    assert launcher["log_processed"]["message"] == "world 3 -> 2: b removed"
    assert (step["worker_rank"], step["log_processed"]["step"], step["log_processed"]["loss"]) == (1, 41, 0.5)
    assert (epoch["worker_rank"], epoch["log"]) == (12, "Epoch 3: loss 0.25 [50%]")
    assert "log_processed" not in epoch
