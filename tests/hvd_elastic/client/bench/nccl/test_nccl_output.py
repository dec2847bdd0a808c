"""What nccl-tests print is read whole, or every reason why not is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.bench.nccl.nccl_output import Buffers, NcclOutput, read_nccl_output
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.hvd_elastic.client.bench.nccl import nccl_text as text


def read(log: str) -> NcclOutput:
    return read_nccl_output(log, source="log")


def problems(log: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read(log)
    return str(caught.value)


def test_a_whole_run() -> None:
    found = read(text.output())
    assert [row.size for row in found.rows] == [1024, 2048, 4096]
    last = found.rows[-1]
    assert (last.count, last.type, last.redop, last.root) == (1024, "float", "sum", -1)
    assert last.out_of_place == Buffers(microseconds=20.0, algorithm_gb_per_second=0.2, bus_gb_per_second=0.2, wrong=0)
    assert last.in_place.bus_gb_per_second == 0.26
    assert found.average_bus_gb_per_second == 0.1325
    assert found.largest_bus_gb_per_second == 0.26
    assert found.wrong == 0
    assert found.networks == ("efa",)


VALUES = st.tuples(*[st.floats(0, 9999.99).map(lambda value: round(value, 2))] * 3)


@given(st.lists(st.tuples(st.integers(1, 2**40), VALUES, VALUES), min_size=1, max_size=20))
def test_rows_are_read_as_they_were_written(rows: list[tuple[int, tuple[float, ...], tuple[float, ...]]]) -> None:
    written = "".join(text.row(size, out, within) for size, out, within in rows)
    found = read(text.output(rows=written)).rows
    assert [(row.size, values(row.out_of_place), values(row.in_place)) for row in found] == rows


def values(buffers: Buffers) -> tuple[float, ...]:
    return buffers.microseconds, buffers.algorithm_gb_per_second, buffers.bus_gb_per_second


def test_a_log_line_between_the_rows_and_prefixes_of_mpirun_and_kubectl() -> None:
    plain = text.output(rows=text.row(1024) + "w-1:9:9 [0] NCCL INFO comm 0x55 rank 1 nranks 2\n" + text.row(2048))
    for prefix in ("[1,0]<stdout>:", "[1,0]<stdout>: ", "[pod/b-launcher-x/launcher] ", "[pod/b/l] [1,12]<stderr>:"):
        tagged = "".join(f"{prefix}{line}\n" for line in plain.splitlines())
        assert read(tagged) == read(plain)


def test_timestamps_iteration_times_and_unchecked_numbers() -> None:
    stamped = text.row(1024).rstrip("\n") + "  2026-01-02 03:04:05\n"
    assert read(text.output(rows=stamped)).rows == read(text.output(rows=text.row(1024))).rows
    head = text.row(1024).split()[:5]
    iterations = " ".join([*head, "1.0 0.5 0.6 0 9 9 9 9 2.0 0.7 0.8 0 9 9 9 9"]) + "\n"
    (found,) = read(text.output(rows=iterations)).rows
    assert (found.out_of_place.microseconds, found.in_place.bus_gb_per_second) == (1.0, 0.8)
    (unchecked,) = read(text.output(rows=text.row(1024, wrong="N/A"))).rows
    assert unchecked.out_of_place.wrong is None


def test_wrong_numbers_are_counted() -> None:
    assert read(text.output(rows=text.row(1024, wrong="12"))).wrong == 24
    failed = text.END.replace("0 OK", "2 FAILED")
    assert read(text.output(rows=text.row(1024, wrong="N/A"), end=failed)).wrong == 2


def test_every_broken_row_is_said() -> None:
    broken = text.row(1024)[:70] + "\n" + text.row(2048) + text.row(4096).replace("20.50", "2o.50")
    said = problems(text.output(rows=broken))
    first = len((text.HEAD + text.EFA + text.TITLES).splitlines()) + 1
    assert f"log:{first}: " in said
    assert f"log:{first + 2}: " in said
    assert said.count("is not a row of nccl-tests") == 2


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", "has no row of nccl-tests"),
        ("hello\n1 2 3\n", "has no row of nccl-tests"),
        (text.output(rows=""), "has no row of nccl-tests"),
        (text.output(end=""), "ends before `# Avg bus bandwidth`"),
        (text.output(end="# Avg bus bandwidth    : much\n"), "is not a number"),
        (text.output(end="w-0: Test NCCL failure common.cu:958\n .. w-0: Test failure\n"), "the run has failed"),
    ],
)
def test_what_is_no_whole_run(log: str, said: str) -> None:
    assert said in problems(log)
