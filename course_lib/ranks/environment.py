"""The environment of ranks: the settings of threads, Open MPI, TensorFlow and Horovod.

The course's own variables are in `course_lib.system.variables`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
ONE_THREAD = dict.fromkeys(THREADS, "1")
OPEN_MPI = {
    # It refuses to run as root, as in containers, unless told twice.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Horovod's thread spins while it waits for a message: it must let the thread that computes have the core.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
# Where no rank sees the processes of another, Open MPI's shared memory fails: its messages go by loopback.
BY_LOOPBACK = {"OMPI_MCA_btl_vader_exclusivity": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # TensorFlow's errors alone
SILENT = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # not even these
TENSORFLOW = {
    **QUIET,
    "TF_ENABLE_ONEDNN_OPTS": "1",  # the same kernels on every processor
    # A process takes as much of a GPU's memory as it needs, and leaves the rest to others: a notebook's kernel and the
    # ranks that it starts, two notebooks, an assessment beside them.
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}

# Horovod's own warning of ranks that wait, which it gives with MPI only, comes after 60 s by default.
STALL_CHECK = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "20"}


def of_ranks(local_ranks: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of ranks of which this host has `local_ranks`, which share its cores.

    What this process has set itself comes before the course's settings, and `extra` before both.
    """
    threads = str(max(1, len(os.sched_getaffinity(0)) // local_ranks))
    course = {**OPEN_MPI, **dict.fromkeys(THREADS, threads), **TENSORFLOW, **STALL_CHECK}
    return {**course, **os.environ, **(extra or {})}
