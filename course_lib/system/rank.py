"""The rank of this process, from the environment variables of the launcher: available without Horovod."""

from __future__ import annotations

import os

VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # by Horovod over Gloo, Open MPI, MPICH


def rank() -> int:
    """The number of this rank; 0 in a process without a launcher."""
    return int(next((os.environ[name] for name in VARIABLES if os.environ.get(name)), "0"))
