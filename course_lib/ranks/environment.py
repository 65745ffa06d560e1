"""The environment of ranks: the course's own variables by name, and the settings of threads, Open MPI, TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# What the launcher tells each rank (see `rank`).
EVENTS = "COURSE_EVENTS"  # set where a launcher reads events from the rank's standard error
RECORD = "COURSE_RECORD"  # the folder that takes the record of the rank's training
FOLDER = "COURSE_FOLDER"  # the folder that the script runs in
ARGUMENTS = "COURSE_ARGUMENTS"  # the script's arguments, a JSON list
TOLD_BY_LAUNCHER = (EVENTS, RECORD, FOLDER, ARGUMENTS)

# What else a rank may be told.
TRAINING_EVENTS = "COURSE_TRAINING_EVENTS"  # set where a view wants to know how training goes on; RECORD reports it too
CORES = "COURSE_CORES"  # the cores of the ranks, which are all on this host, one for each: "0,1"
WEIGHTS = "COURSE_WEIGHTS"  # the file that an assessed script saves its weights to
FAKE_GPUS = "COURSE_FAKE_GPUS"  # how many GPUs a rank is made to see that are not there: one number for all, or a list

# What `course grade` tells the processes that grade.
ACCEPTED = "COURSE_ACCEPTED"  # set where an instructor has looked at the submission
OUTCOME = "COURSE_OUTCOME"  # the file that takes what came of an assessment

# What users set (see README.md).
DATA_DIR = "COURSE_DATA_DIR"  # the folder with the data sets' published files
SLICE = "COURSE_SLICE"  # how many training images `data.load` gives
REMOTE_SHELL = "COURSE_REMOTE_SHELL"  # the command that reaches the host {host}, in the place of ssh

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
TENSORFLOW = {**QUIET, "TF_ENABLE_ONEDNN_OPTS": "1"}  # the same kernels on every processor

# Horovod's own warning of ranks that wait, which it gives with MPI only, comes after 60 s by default.
STALL_CHECK = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "20"}


def of_ranks(local_ranks: int, record: Path | None = None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of ranks of which this host has `local_ranks`, which share its cores.

    `record` is the folder for the record of their training. What this process has set itself comes before the course's
    settings, and `extra` before both.
    """
    threads = str(max(1, len(os.sched_getaffinity(0)) // local_ranks))
    env = {**OPEN_MPI, **dict.fromkeys(THREADS, threads), **TENSORFLOW, **STALL_CHECK, **os.environ, EVENTS: "1"}
    if record is not None:
        env[RECORD] = str(Path(record).absolute())
    return {**env, **(extra or {})}
