"""Horovod's `horovodrun` without checks that take seconds, and with the course's remote shell.

horovodrun starts a process that imports TensorFlow, to check that its controller was built, and checks that it can
reach the hosts by ssh. `launch` has already checked both (see `launch.controllers` and `remote.check`).
"""

from __future__ import annotations

import shlex


def patch_launcher() -> None:
    """Patch Horovod's launcher; call this before `horovod.runner.launch` is imported."""
    from horovod.runner.util import network, remote

    remote.get_remote_command = remote_command
    resolve = network.resolve_host_address

    def resolve_host_address(name: str) -> str | None:
        address = resolve(name)
        # Debian resolves a host's own name to 127.0.1.1, which no interface has: Horovod would connect there by ssh.
        return "127.0.0.1" if address and address.startswith("127.") else address

    network.resolve_host_address = resolve_host_address

    from horovod.runner import launch
    from horovod.runner.common.util import env

    env.IGNORE_REGEXES.add("SLURM_.*")  # some of Slurm's variables describe this host, and are wrong on others
    launch.gloo_built = launch.mpi_built = lambda verbose=False: True
    launch._check_all_hosts_ssh_successful = lambda *_, **__: True


def remote_command(local_command: str, host: str, *_: object, **__: object) -> str:
    """The shell command that runs `local_command`, which is quoted for a shell, on `host`."""
    from course_lib.ranks.remote import shell

    return f"{shlex.join(shell(host))} {local_command}"


if __name__ == "__main__":
    patch_launcher()

    from horovod.runner import launch

    launch.run_commandline()
