"""`simulate` through the command line's own entry point, on made-up days and on small traces."""

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from hvd_elastic import cli
from tests.hvd_elastic.cli.entry_point import Tool, tool

JOB = """name: train
image: b:1
command: [python, train.py]
workers: {min: 1, start: 2, max: 8, gpus: 1}
checkpoint: s3://bucket/train
batch: {global: 1024}
"""
SMALL = ("--nodes", "2", "--node-gpus", "4", "--spot-nodes", "1", "--hours", "2")
WAYS = ["static", "stock", "restart", "ours", "oracle"]


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tool:
    """Runs `simulate` in a folder with job.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB)

    return tool(capsys, monkeypatch, "simulate")


def test_the_ways_stand_side_by_side(simulate: Tool) -> None:
    ran = simulate("job.yaml", *SMALL)
    assert ran.code == 0
    title, *lines = ran.out.splitlines()
    assert title.split()[:3] == ["JOB", "WAY", "GOODPUT"]
    assert [line.split()[:2] for line in lines] == [["all", way] for way in WAYS]
    assert lines[-1].split()[2] == "100.0%"
    assert "made up from seed 0: 2 nodes of 4 GPUs, 1 of them spot; 2 h" in ran.err
    assert "train: speed assumed: 100 samples/s a worker" in ran.err


def test_the_same_words_give_the_same_day_and_another_seed_another(simulate: Tool) -> None:
    first, again, other = (simulate("job.yaml", *SMALL, "-o", "json", "--seed", seed) for seed in ("3", "3", "4"))
    assert first.out == again.out
    assert first.out != other.out


def test_each_of_several_jobs_has_its_rows(simulate: Tool) -> None:
    ran = simulate(
        "job.yaml", *SMALL, "--copies", "2", "--start", "30m", "--way", "ours", "--way", "static", "-o", "csv"
    )
    rows = list(csv.DictReader(ran.out.splitlines()))
    assert [(row["way"], row["job"]) for row in rows] == [
        *(("static", "all"), ("static", "train-1"), ("static", "train-2")),
        *(("ours", "all"), ("ours", "train-1"), ("ours", "train-2")),
    ]
    held = [float(row["held_gpu_hours"]) for row in rows]
    assert held[0] == pytest.approx(held[1] + held[2])


def test_json_has_the_day_the_assumptions_and_every_change_of_size(simulate: Tool) -> None:
    data = json.loads(simulate("job.yaml", *SMALL, "-o", "json", "--length", "1h").out)
    assert [way["way"] for way in data["ways"]] == WAYS
    assert data["day"]["seconds"] == 7200
    assert any("speed assumed" in remark for remark in data["remarks"])
    (job,) = data["ways"][3]["jobs"]
    assert job["sizes"][-1]["second"] <= 7200
    assert yaml.safe_load(simulate("job.yaml", *SMALL, "-o", "yaml", "--length", "1h").out) == data


def test_a_recorded_trace_is_played(simulate: Tool) -> None:
    Path("nodes.csv").write_text("trace,t_s,available\na,0,4\na,600,2\na,1200,4\na,3600,4\n")
    Path("pods.csv").write_text("pod,app,gpus,created_s,scheduled_s,deleted_s\np,a,1,60,60,660\nq,a,1,2000,2000,3000\n")
    ran = simulate("job.yaml", "--trace", "nodes.csv", "--trace", "pods.csv", "-o", "json", "--way", "ours")
    assert ran.code == 0
    data = json.loads(ran.out)
    assert data["day"]["pods"] == 2
    assert "nodes.csv a (numbers of nodes)" in data["day"]["source"]
    assert max(change["workers"] for change in data["ways"][0]["jobs"][0]["sizes"]) <= 4


def test_a_trace_that_another_project_published_is_converted(simulate: Tool) -> None:
    Path("spot.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [4, 2, 4, 4, 4, 4]}')
    refused = simulate("job.yaml", "--trace", "spot.json")
    assert refused.code == 2
    assert "hvd-elastic simulate --convert spot.json > NEW.csv" in refused.err
    made = simulate("--convert", "spot.json")
    assert made.code == 0
    assert made.out.splitlines()[:3] == ["trace,t_s,available", "spot,0,4", "spot,600,2"]
    Path("new.csv").write_text(made.out)
    assert simulate("job.yaml", "--trace", "new.csv", "--way", "ours").code == 0
    assert simulate("--convert", "none.json").code == 2


def test_without_inference_nothing_is_said_of_its_waiting(simulate: Tool) -> None:
    Path("nodes.csv").write_text("trace,t_s,available\na,0,2\na,3600,2\n")
    (line,) = simulate("job.yaml", "--trace", "nodes.csv", "--way", "ours").out.splitlines()[1:]
    assert line.split()[5:7] == ["-", "-"]


def test_money_needs_a_price_and_says_so(simulate: Tool) -> None:
    Path("prices.yaml").write_text("currency: EUR\nmachines: {box: {gpus: 4, on_demand: 8, spot: 4}}\n")
    ran = simulate("job.yaml", *SMALL, "--machine", "box", "--prices", "prices.yaml", "--way", "ours", "-o", "csv")
    (row,) = csv.DictReader(ran.out.splitlines())
    assert 1 < float(row["cost"]) / float(row["held_gpu_hours"]) < 2
    assert "cost in EUR, at the mean price of the nodes" in ran.err
    (row,) = csv.DictReader(simulate("job.yaml", *SMALL, "--way", "ours", "-o", "csv").out.splitlines())
    assert row["cost"] == ""


def test_parts_of_gpus_cost_their_share_of_a_machine(simulate: Tool) -> None:
    Path("mig.yaml").write_text(JOB.replace("gpus: 1", "gpus: 1, gpu_resource: nvidia.com/mig-1g.10gb"))
    parts = "parts: {nvidia.com/mig-1g.10gb: 28}"
    words = ("mig.yaml", *SMALL, "--machine", "box", "--prices", "prices.yaml", "--way", "ours", "-o", "csv")
    costs = []
    for entry in ("gpus: 4", f"gpus: 4, {parts}"):
        Path("prices.yaml").write_text(f"currency: EUR\nmachines: {{box: {{{entry}, on_demand: 8, spot: 8}}}}\n")
        ran = simulate(*words)
        (row,) = csv.DictReader(ran.out.splitlines())
        costs.append(row["cost"] and float(row["cost"]) / float(row["held_gpu_hours"]))
    assert costs == ["", pytest.approx(8 / 28)]


def test_jobs_of_different_gpus_share_no_day(simulate: Tool) -> None:
    Path("amd.yaml").write_text(JOB.replace("gpus: 1", "gpus: 1, gpu_resource: amd.com/gpu").replace("train", "t", 1))
    ran = simulate("job.yaml", "amd.yaml", *SMALL)
    assert ran.code == 2
    assert "these jobs ask for amd.com/gpu, nvidia.com/gpu: simulate them apart" in ran.err


def test_the_picture_is_written(simulate: Tool) -> None:
    ran = simulate("job.yaml", *SMALL, "--picture", "day.svg")
    assert "written: day.svg" in ran.err
    root = ElementTree.parse("day.svg").getroot()
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == len(WAYS)


def test_a_stall_by_hand_costs_goodput(simulate: Tool) -> None:
    def goodput(*words: str) -> float:
        ran = simulate("job.yaml", *SMALL, "--way", "ours", "-o", "json", *words)
        return float(json.loads(ran.out)["ways"][0]["goodput"])

    assert goodput("--stall", "first_step=600") < goodput() - 0.05
    assert goodput("--stalls", "stock") < goodput()


def test_a_measured_speed_is_used(simulate: Tool) -> None:
    Path("speeds.csv").write_text("workers,steps_per_s\n1,1\n8,4\n")
    ran = simulate("job.yaml", *SMALL, "--speed", "train=speeds.csv", "--way", "oracle", "-o", "json")
    assert any("speeds.csv: sizes measured, in workers: 1, 8" in remark for remark in json.loads(ran.out)["remarks"])


def test_jobs_that_share_by_gain_train_more_where_it_is_worth_most(simulate: Tool) -> None:
    Path("flat.csv").write_text("workers,steps_per_s\n1,1\n8,1.5\n")
    Path("other.yaml").write_text(JOB.replace("name: train", "name: other"))
    words = ("other.yaml", "job.yaml", *SMALL, "--speed", "other=flat.csv", "--way", "ours", "-o", "json")
    compete, share = (json.loads(simulate(*words, *more).out) for more in ((), ("--autoscale",)))

    def samples(data: dict[str, Any], name: str) -> float:
        return next(float(job["samples"]) for job in data["ways"][0]["jobs"] if job["name"] == name)

    assert samples(share, "train") > samples(compete, "train")
    assert "ours: jobs share idle GPUs as autoscale has it" in share["remarks"]
    assert any("jobs compete for idle GPUs" in remark for remark in compete["remarks"])


def test_nodes_are_bought_for_what_has_no_room_and_for_the_reserve(simulate: Tool) -> None:
    words = ("job.yaml", *SMALL, "--way", "ours")
    alone = simulate(*words)
    assert "BOUGHT" not in alone.out
    ran = simulate(*words, "--buy-nodes", "2", "--buy-delay", "60")
    assert ran.out.splitlines()[0].split()[-2:] == ["BOUGHT", "GPU-H"]
    assert "a cluster autoscaler buys up to 2 nodes of 4 GPUs, each there after 60 s" in ran.err

    def bought(*more: str) -> float:
        (row,) = csv.DictReader(simulate(*words, "-o", "csv", *more).out.splitlines())
        return float(row["bought_gpu_hours"])

    assert bought() == 0
    assert 0 < bought("--buy-nodes", "1") <= 4 * 2
    assert bought("--buy-nodes", "2", "--autoscale") < bought("--buy-nodes", "2")
    remarks = json.loads(simulate(*words, "--autoscale", "--buffer", "--buy-nodes", "2", "-o", "json").out)["remarks"]
    assert "ours: jobs leave a reserve idle for inference, for which a buffer has nodes bought" in remarks


def test_choose_names_the_winner_and_its_flags(simulate: Tool) -> None:
    grid = ("--grid", "min=1,2", "--grid", "max=2,8", "--grid", "grace=30", "--grid", "every=60,600")
    ran = simulate("job.yaml", *SMALL, "--choose", *grid)
    assert ran.code == 0
    assert len([line for line in ran.out.splitlines() if line.strip().startswith(tuple("12345678"))]) == 8
    winner = next(line for line in ran.out.splitlines() if line.startswith("winner: "))
    assert "max 8" in winner
    assert "runner-up: " in ran.out
    assert "one step from the winner:" in ran.out
    assert "a stall twice as long:" in ran.out
    *_, flags = ran.out.strip().splitlines()
    assert flags.startswith("--workers-min ")
    monkey = flags.split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["hvd-elastic", "generate", "job.yaml", *monkey])
        cli.main()


def test_choose_is_there_for_programs(simulate: Tool) -> None:
    words = ("job.yaml", *SMALL, "--choose", "--grid", "max=2,8", "--grid", "jobs=1,2", "--grid", "every=60")
    data = json.loads(simulate(*words, "-o", "json").out)
    assert [choice["settings"][0]["jobs"] for choice in data["choices"]] == [1, 2]
    rows = list(csv.DictReader(simulate(*words, "-o", "csv").out.splitlines()))
    assert len(rows) == sum(len(choice["settings"]) for choice in data["choices"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.yaml"], "none.yaml"),
        (["job.yaml", "--trace", "none.csv"], "none.csv: cannot be read"),
        (["job.yaml", "--trace", "job.yaml"], "begins no trace"),
        (["job.yaml", "--trace", "a.csv", "--seed", "1"], "--trace plays a recorded day, --seed makes one up"),
        (["job.yaml", "--from", "2"], "--from and --trace-name need --trace"),
        (["job.yaml", "--inference", "most"], "write LOW:HIGH"),
        (["job.yaml", "--grid", "min=1"], "need --choose"),
        (["job.yaml", "--choose", "--picture", "a.svg"], "--choose simulates one way"),
        (["job.yaml", "--picture", "none/a.svg"], "there is no folder none"),
        (["job.yaml", "--stalls", "none.yaml"], "none.yaml"),
        (["job.yaml", "--start", "noon"], "--start: 'noon': is not a time"),
        (["job.yaml", "--buffer", "--buy-nodes", "2"], "--buffer needs --autoscale, which leaves the reserve idle"),
        (["job.yaml", "--buffer", "--autoscale"], "--buffer needs --buy-nodes"),
        ([], "JOB.yaml"),
    ],
)
def test_bad_input_is_one_error_and_nothing_is_written(simulate: Tool, words: list[str], said: str) -> None:
    ran = simulate(*words)
    assert ran.code == 2
    assert said in ran.err
    assert ran.out == ""
    assert [path.name for path in Path().iterdir()] == ["job.yaml"]
