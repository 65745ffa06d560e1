"""The environment of ranks: the settings of threads, Open MPI, TensorFlow and Horovod.

The course's own variables are in `course_lib.system.variables`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
ONE_THREAD = dict.fromkeys(THREADS, "1")
OPEN_MPI = {
    # Open MPI refuses to run as root, as in containers, unless both variables are set.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Horovod's thread polls while it waits for a message: it must yield the core to the thread that computes.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
# If the ranks can't see each other's processes, Open MPI's shared memory fails; these settings make it use loopback.
BY_LOOPBACK = {"OMPI_MCA_btl_vader_exclusivity": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # only TensorFlow's errors
SILENT = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # no messages
TENSORFLOW = {
    **QUIET,
    "TF_ENABLE_ONEDNN_OPTS": "1",  # the same kernels on every processor
    # By default a process takes all memory of a GPU. Several processes must share it: a notebook's kernel and its
    # ranks, two notebooks, a notebook and an assessment.
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}

# Horovod warns of stalled ranks after 60 s by default (with MPI only).
STALL_CHECK = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "20"}


def of_ranks(local_ranks: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables of the ranks.

    This process's environment overrides the course's settings, and `extra` overrides both.

    Args:
        local_ranks: number of ranks on this host, which share its cores.
        extra: further variables.
    """
    threads = str(max(1, len(os.sched_getaffinity(0)) // local_ranks))
    course = {**OPEN_MPI, **dict.fromkeys(THREADS, threads), **TENSORFLOW, **STALL_CHECK}
    return {**course, **os.environ, **(extra or {})}
