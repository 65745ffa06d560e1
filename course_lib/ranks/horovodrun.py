"""Horovod's own `horovodrun`, less the checks that cost it seconds at each start, and with the course's remote shell.

To learn whether its controller was built, horovodrun imports TensorFlow in a process of its own. `launch` has
asked that already (see `launch.controllers`) and has chosen a controller that was built. It has also tried to reach
the other hosts (see `remote.check`).
"""

from __future__ import annotations

import shlex


def patch_launcher() -> None:
    """Patch Horovod's launcher; to be called before any of it is imported."""
    from horovod.runner.util import network, remote

    remote.get_remote_command = remote_command
    resolve = network.resolve_host_address

    def resolve_host_address(name: str) -> str | None:
        address = resolve(name)
        # Debian gives a host's own name 127.0.1.1, which no interface has: Horovod would go there by ssh.
        return "127.0.0.1" if address and address.startswith("127.") else address

    network.resolve_host_address = resolve_host_address

    from horovod.runner import launch
    from horovod.runner.common.util import env

    env.IGNORE_REGEXES.add("SLURM_.*")  # what a job says of this host is wrong on another
    launch.gloo_built = launch.mpi_built = lambda verbose=False: True
    launch._check_all_hosts_ssh_successful = lambda *_, **__: True


def remote_command(local_command: str, host: str, *_: object, **__: object) -> str:
    """What runs `local_command`, which is quoted for a shell, on `host`."""
    from course_lib.ranks.remote import shell

    return f"{shlex.join(shell(host))} {local_command}"


if __name__ == "__main__":
    patch_launcher()

    from horovod.runner import launch

    launch.run_commandline()
