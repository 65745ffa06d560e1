"""A lab: a container with JupyterLab, and what it may use."""

from __future__ import annotations

import json
import socket
import urllib.request
from dataclasses import dataclass

PREFIX = "one-model-many-gpus"  # of images and labels
LAB_LABEL = f"{PREFIX}.lab"
WORKSPACE_LABEL = f"{PREFIX}.workspace"
GPUS_LABEL = f"{PREFIX}.gpus"  # of a lab, also one that the hub has started
INNER_PORT = 8888  # the lab's port in its container
SHARED_MEMORY = "1g"  # the engines' 64 MB are too few for NCCL and Open MPI, which exchange gradients there
# Pinned pages for NCCL and stacks as NVIDIA recommends them. Without a bound on open files, Open MPI and Python spend
# minutes on closing a billion of them. All labs may have the same user: nobody's processes count against another's.
ULIMITS = {"nofile": 65536, "nproc": -1, "memlock": -1, "stack": 67108864}
PROCESSES = 16384  # and threads, for each lab: eight ranks on 128 cores have some thousands
TOKEN_COMMAND = '"$(openssl rand -hex 24)"'  # what a dry run prints for a token


@dataclass(frozen=True)
class Lab:
    """One lab. Its container and its volume have its name."""

    name: str
    image: str
    port: int = INNER_PORT
    address: str = "127.0.0.1"
    gpus: tuple[int, ...] = ()
    cores: tuple[int, ...] = ()  # none: all
    shared_memory: str = SHARED_MEMORY
    sandbox: bool = False  # bubblewrap works inside, for scripts that nobody has read
    data: str = ""  # folder with the data sets
    token: str = ""
    state: str = ""
    health: str = ""  # "unhealthy" if the image's check failed

    @property
    def running(self) -> bool:
        """Whether its container runs."""
        return self.state == "running"

    @property
    def link(self) -> str:
        """The link that opens it, with its token."""
        host = socket.gethostname() if self.address == "0.0.0.0" else self.address
        return f"http://{host}:{self.port}/lab/tree/Welcome.md?token={self.token}"

    def answers(self) -> bool:
        """Return whether JupyterLab answers at its port."""
        host = "127.0.0.1" if self.address == "0.0.0.0" else self.address
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"http://{host}:{self.port}/api", timeout=5) as answer:
                return "version" in json.load(answer)
        except (OSError, ValueError):
            return False
