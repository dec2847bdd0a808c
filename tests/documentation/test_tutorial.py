"""What the tutorial shows of a cluster can be typed as it stands; tests/cluster/test_tutorial.py types it."""

import yaml

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_REPLICA_INDEX
from tests.documentation import tutorial_page
from tests.documentation.tutorial_page import ROOT


def test_the_job_needs_nothing_but_the_projects_own_image() -> None:
    job = yaml.safe_load(tutorial_page.job())
    assert job["image"] == tutorial_page.IMAGE
    script = job["command"][1].removeprefix("/workspace/")
    assert (ROOT / script).is_file()
    assert "COPY examples /workspace/examples" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_each_step_has_its_commands() -> None:
    assert [len(tutorial_page.commands(number)) for number in (5, 6, 7)] == [2, 6, 4]


def test_the_inference_pod_takes_the_place_of_worker_0() -> None:
    first, *_ = tutorial_page.commands(7)
    (pod,) = yaml.safe_load_all(first.partition("<<EOF\n")[2].partition("\nEOF")[0])
    (term,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {LABEL_JOB_NAME: "first", LABEL_REPLICA_INDEX: "0"}
    assert pod["spec"]["priorityClassName"] == "inference-pc"
