"""Which rank of a run this process is, as the launcher says in its environment: known before Horovod is loaded."""

from __future__ import annotations

import os

VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # by Horovod over Gloo, Open MPI, MPICH


def rank() -> int:
    """The number of this rank; 0 in a process that no launcher has started."""
    return int(next((os.environ[name] for name in VARIABLES if os.environ.get(name)), "0"))
