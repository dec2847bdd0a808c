"""Every reader of YAML refuses what is deep, or what its aliases make large, before it builds anything of it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hvd_elastic.client.connection.cluster_errors import NotConfiguredError
from hvd_elastic.client.connection.kubeconfig import read_kubeconfig
from hvd_elastic.client.doctor.checks.kueue_configuration import KueueConfiguration, kueue_configuration
from hvd_elastic.client.profile.profile_file import read_profile
from hvd_elastic.client.report.prices import read_prices
from hvd_elastic.client.sweep.grid import file_points
from hvd_elastic.decide.simulate.inputs.speed_file import read_curve
from hvd_elastic.decide.simulate.inputs.stall_settings import read_stalls
from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.lint.lint_settings import read_settings

ROOT = Path(__file__).parents[2]
BOMBS = {
    "deep": "a: " + "[" * 100_000,
    "aliases": "\n".join(
        [
            "a0: &a0 {k: 1}",
            *(f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(9))}}}" for i in range(1, 10)),
        ]
    ),
    "merges": "name: x\na: &a {"
    + ", ".join(f"k{i}: 1" for i in range(999))
    + "}\nb: {"
    + ", ".join(["<<: *a"] * 999)
    + "}\n",
}
READERS: dict[str, Callable[[Path], object]] = {
    "job": read_job,
    "kubeconfig": lambda path: read_kubeconfig([path]),
    "lint settings": read_settings,
    "points": file_points,
    "prices": read_prices,
    "profile": read_profile,
    "speeds": read_curve,
    "stalls": lambda path: read_stalls(path, {}),
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_a_bomb_is_refused_with_a_reason(tmp_path: Path, reader: str, bomb: str) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(BOMBS[bomb])
    with pytest.raises(HvdElasticError) as caught:
        READERS[reader](path)
    text = str(caught.value)
    assert re.search("nest|once its aliases are expanded", text)
    assert len(text) < 500


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_config_map_that_is_a_bomb_says_nothing_of_kueue(bomb: str) -> None:
    assert kueue_configuration(BOMBS[bomb]) == KueueConfiguration()


def test_what_is_no_kubeconfig_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("a: [\n")
    with pytest.raises(NotConfiguredError, match=r"config cannot be read: line 2, column 1: not YAML"):
        read_kubeconfig([path])


def test_nothing_else_reads_yaml_but_a_table_that_ships() -> None:
    folders = (ROOT / name for name in ("hvd_elastic", "mpijob", "discovery", "trainer", "priorityclasses"))
    modules = {module for folder in folders for module in folder.rglob("*.py")}
    reading = {module.name for module in modules if re.search(r"yaml\.\w*(?:load|parse|compose)", module.read_text())}
    assert reading == {"yaml_composer.py", "machine_types.py"}
