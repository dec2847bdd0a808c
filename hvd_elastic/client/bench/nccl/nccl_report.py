"""What a run of nccl-tests has measured as plain data, as CSV and as a sentence."""

import csv
import io
from dataclasses import asdict
from typing import Any

from hvd_elastic.client.bench.nccl.nccl_output import NcclOutput, NcclRow
from hvd_elastic.mpijob.contract import Exit, HvdElasticError


class WrongNumbersError(HvdElasticError):
    """nccl-tests has found wrong numbers."""

    exit_code = Exit.ERROR


def nccl_document(output: NcclOutput) -> dict[str, Any]:
    """Plain data for JSON and YAML."""
    return {
        "networks": list(output.networks),
        "average_bus_gb_per_second": output.average_bus_gb_per_second,
        "largest_bus_gb_per_second": output.largest_bus_gb_per_second,
        "wrong": output.wrong,
        "rows": [asdict(row) for row in output.rows],
    }


def nccl_csv(output: NcclOutput) -> str:
    """One line for each row, after a line of titles. Values of buffers have `out_of_place_` or `in_place_` before."""
    rows = [_flat(row) for row in output.rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def nccl_summary(output: NcclOutput) -> str:
    """One sentence: the bandwidths, and what carried the messages."""
    carried = " and ".join(output.networks) or "not in the log (NCCL_DEBUG=INFO)"
    return (
        f"bus bandwidth: {output.average_bus_gb_per_second:g} GB/s on average, "
        f"{output.largest_bus_gb_per_second:g} GB/s at most; network: {carried}"
    )


def _flat(row: NcclRow) -> dict[str, Any]:
    plain = asdict(row)
    for kind in ("out_of_place", "in_place"):
        plain |= {f"{kind}_{name}": value for name, value in plain.pop(kind).items()}
    return plain
