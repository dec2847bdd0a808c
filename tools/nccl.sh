#!/bin/sh
# Has the virtual environment $1 train on this machine's GPUs: NVIDIA's compiler of uv.lock, and Horovod built with NCCL.
#
# Without a GPU it changes nothing. The wheel is kept in the cache beside that for CPUs, so only the first time takes minutes.
set -eu
venv=$1

set -- /dev/nvidia[0-9]*
[ -e "$1" ] || exit 0
VIRTUAL_ENV=$venv "$venv/bin/uv" sync --frozen --all-extras --group loaders --group cuda-compiler --inexact --active --quiet \
    --no-build-isolation-package hvd-elastic --python "$venv/bin/python"
"$venv/bin/python" -c 'import sys, horovod.torch as hvd; sys.exit(not hvd.nccl_built())' ||
    "$venv/bin/hvd-elastic" install-horovod >/dev/null
