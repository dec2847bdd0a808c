"""Output of nccl-tests, written after the formats of its `src/util.cu` and of the logs of NCCL and aws-ofi-nccl."""

from collections.abc import Sequence

HEAD = """\
# nccl-tests version 2.19.6 nccl-headers=22807 nccl-library=22807
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid     41 on bench-nccl-worker-0 device  0 [0000:10:00] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid     38 on bench-nccl-worker-1 device  0 [0000:10:00] NVIDIA A100-SXM4-40GB
"""  # noqa: E501 - as it is printed
TITLES = """\
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
"""  # noqa: W291 - as it is printed
END = """\
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.1325 
#
# Collective test concluded: all_reduce_perf
"""  # noqa: W291 - as it is printed

EFA = """\
w-0:41:41 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 4 nics)
w-0:41:41 [0] NCCL INFO Using network Libfabric
w-0:41:55 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA
"""
OLD_EFA = """\
w-0:41:41 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
w-0:41:41 [0] NCCL INFO Using network AWS Libfabric
"""
OFI_TCP = """\
w-0:41:41 [0] NCCL INFO NET/OFI Selected provider is tcp;ofi_rxm, fabric is 10.0.0.0/24 (found 1 nics)
w-0:41:55 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Libfabric/0
"""
IB = """\
w-0:41:41 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.4<0>
w-0:41:41 [0] NCCL INFO Using network IB
w-0:41:55 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
"""
IB_PLUGIN = "w-0:41:41 [0] NCCL INFO Using network IBext_v8\n"
SOCKET = """\
w-0:41:41 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
w-0:41:41 [0] NCCL INFO NET/IB : No device found.
w-0:41:41 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>
w-0:41:41 [0] NCCL INFO Using network Socket
w-0:41:55 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
"""
FOUND_ONLY = "w-0:41:41 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>\n"
EFA_THEN_SOCKET = (
    "w-0:41:41 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n"
    "w-0:41:41 [0] NCCL INFO Using network Socket\n"
)
"""The plugin was found, and not used."""


def row(
    size: int, out: Sequence[float] = (20.5, 0.05, 0.05), within: Sequence[float] = (19.1, 0.06, 0.06), wrong: str = "0"
) -> str:
    """A row as writeBenchmarkLinePreamble and writeBenchmarkLineBody print it."""
    head = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {-1:6d}"
    bodies = [f"  {time:7.2f}  {alg:6.2f}  {bus:6.2f}  {wrong:>6}" for time, alg, bus in (out, within)]
    return f"{head}{''.join(bodies)}\n"


ROWS = row(1024) + row(2048, (21.0, 0.1, 0.1), (22.0, 0.09, 0.09)) + row(4096, (20.0, 0.2, 0.2), (16.0, 0.26, 0.26))


def output(log: str = EFA, rows: str = ROWS, end: str = END) -> str:
    return HEAD + log + TITLES + rows + end
