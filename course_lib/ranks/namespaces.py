"""Simulated hosts on this machine, with their own names, addresses, processes and SSH servers.

    with hosts(2) as (a, b):
        a.run(["horovodrun", "-np", "2", "-H", "a:1,b:1", "python", "train.py"])

A host is a set of Linux namespaces (network, host name, mounts, processes) that shares the processors and the files
of this machine. A switch (a bridge in its own namespace) connects the hosts. `ssh` works between all hosts without a
password, with temporary keys. The hosts have their own /etc/ssh and home folder, and do not write to those of this
machine. Each namespace exists as long as its first process, which ends when this process closes its end of a pipe or
dies. So no namespace is left behind.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.ranks import environment
from course_lib.system import paths, variables
from course_lib.system.errors import CourseError, last_line

_PACKAGES = {
    "ip": "iproute2",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
# $1 is the folder to delete at the end, in case this process can't.
_SWITCH = """
trap 'rm -rf "$1" || { sleep 1; rm -rf "$1"; }' EXIT
ip link add name switch type bridge
ip link set switch up
"""
_BOOT = """
hostname "$1"
mount --bind "$2/passwd" /etc/passwd
mount --bind "$2/shadow" /etc/shadow
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/ssh" /etc/ssh
mount -t tmpfs none /run
mkdir /run/sshd
ip link set lo up
"$3" -h "/etc/ssh/host-$1"
"""
_SSHD = """\
AuthorizedKeysFile /etc/ssh/identity.pub
PasswordAuthentication no
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
"""
_SSH = """\
IdentityFile /etc/ssh/identity
IdentitiesOnly yes
GlobalKnownHostsFile /etc/ssh/known_hosts
LogLevel ERROR
"""


@dataclass(frozen=True)
class Host:
    """A simulated host: its name, its address, and the id on this machine of the process that keeps it alive."""

    name: str
    address: str
    pid: int
    _env: Mapping[str, str]

    def popen(self, command: Sequence[str], cwd: str | Path = "/", **options: Any) -> subprocess.Popen:
        """Start `command` on this host in the folder `cwd`; `options` as for `subprocess.Popen`.

        The returned process runs outside the host: to end it does not end the command, which ends with `hosts`.
        """
        env = {**os.environ, **(options.pop("env", None) or {}), **self._env}
        entered = ["nsenter", "--target", str(self.pid), "--net", "--uts", "--mount", "--pid"]
        return subprocess.Popen([*entered, "env", f"--chdir={cwd}", *command], env=env, **options)

    def run(
        self, command: Sequence[str], timeout: float | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` on this host; return exit code and output. Raises TimeoutExpired after `timeout` seconds."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with self.popen(command, **{**pipes, **options}) as process:
            try:
                output, errors = process.communicate(timeout=timeout)
            finally:
                process.kill()
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def limit(self, rate: str | None) -> None:
        """Limit the rate at which this host sends.

        Args:
            rate: in the notation of `tc`, "1gbit" or "100mbit"; None: no limit.

        Raises CourseError if `tc` or the kernel's token bucket filter is missing.
        """
        _enter(self.pid, "tc qdisc delete dev eth0 root 2>/dev/null || true")
        if rate is not None:  # a small burst, because the burst is sent without a limit
            _enter(self.pid, f"tc qdisc add dev eth0 root tbf rate {rate} burst 32kb latency 50ms")


@contextlib.contextmanager
def hosts(count: int = 2, env: Mapping[str, str] | None = None) -> Iterator[list[Host]]:
    """Create hosts named a, b, c, … for the duration of the block.

    Args:
        count: number of hosts, at most 26.
        env: environment variables of logins on the hosts, which also have this Python first on the PATH and the data
            of this machine.

    Raises CourseError if this is not Linux, the user is not root, a tool is missing, or a container does not allow
    namespaces.
    """
    _check()
    names = [chr(ord("a") + number) for number in range(count)]
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="course-hosts-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        login = {**_login(folder), **(env or {})}
        addresses = {name: f"10.0.0.{number + 1}" for number, name in enumerate(names)}
        _write(folder, addresses, login)
        switch = stack.enter_context(_namespace(["--net"], _SWITCH, str(folder)))
        started = []
        for name, address in addresses.items():
            kinds = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
            pid = stack.enter_context(_namespace(kinds, _BOOT, name, str(folder / "etc"), _path("sshd")))
            cable = f"ip link add port-{name} type veth peer name eth0 netns {pid}"
            _enter(switch, f"{cable} && ip link set port-{name} master switch up")
            _enter(pid, f"ip address add {address}/24 dev eth0 && ip link set eth0 up")
            started.append(Host(name, address, pid, login))
        yield started


def _check() -> None:
    if sys.platform != "linux":
        raise CourseError("Simulated hosts need Linux namespaces: run this on Linux.")
    missing = sorted({package for tool, package in _PACKAGES.items() if not _path(tool)})
    if missing:
        raise CourseError(
            f"Simulated hosts need the packages iproute2 and openssh-server: apt-get install {' '.join(missing)}"
        )
    if os.geteuid():
        raise CourseError(
            "Simulated hosts (with the packages iproute2 and openssh-server) need root: run this with sudo."
        )


def _path(tool: str) -> str:
    return shutil.which(tool, path=_environment()["PATH"]) or ""


def _environment() -> dict[str, str]:
    """The environment of this process, with /usr/sbin and /sbin on the PATH."""
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}


def _login(folder: Path) -> dict[str, str]:
    """The environment of logins: separate home and temporary folders, this Python, this machine's data."""
    keep = {name: os.environ[name] for name in (variables.DATA_DIR, variables.SLICE) if name in os.environ}
    return {
        **keep,
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "KERAS_HOME": os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras"),
        "XDG_CACHE_HOME": str(paths.cache().parent),
        **environment.OPEN_MPI,
    }


def _write(folder: Path, addresses: Mapping[str, str], login: Mapping[str, str]) -> None:
    """Write the files that the hosts see instead of this machine's: etc/, home/ and tmp/."""
    ssh = folder / "etc" / "ssh"
    for path in (ssh, folder / "home", folder / "tmp"):
        path.mkdir(parents=True)
    me = pwd.getpwuid(os.geteuid())
    users = [user for user in pwd.getpwall() if user.pw_name != me.pw_name]
    users.append(pwd.struct_passwd((*me[:5], str(folder / "home"), "/bin/sh")))
    (folder / "etc" / "passwd").write_text("".join(":".join(map(str, user)) + "\n" for user in users))
    (folder / "etc" / "shadow").write_text(f"{me.pw_name}:*:19000:0:99999:7:::\n")  # sshd refuses locked accounts
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
    (folder / "etc" / "hosts").write_text("\n".join(lines) + "\n")
    for key in ("identity", *(f"host-{name}" for name in addresses)):
        _do(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", str(ssh / key)])
    known = [f"{name},{address} {(ssh / f'host-{name}.pub').read_text()}" for name, address in addresses.items()]
    (ssh / "known_hosts").write_text("".join(known))
    (ssh / "ssh_config").write_text(_SSH)
    variables = " ".join(f'"{name}={value}"' for name, value in login.items())
    (ssh / "sshd_config").write_text(f"{_SSHD}SetEnv {variables}\n")


@contextlib.contextmanager
def _namespace(kinds: Sequence[str], script: str, *arguments: str) -> Iterator[int]:
    """Create namespaces for the duration of the block, run `script` in them, yield the id of their first process."""
    keeper = subprocess.Popen(
        ["unshare", *kinds, "sh", "-c", f"set -e\n{script}\necho ready\nread end", "sh", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
        start_new_session=True,  # Ctrl-C must reach only the commands on the hosts
    )
    assert keeper.stdin
    assert keeper.stdout
    assert keeper.stderr
    try:
        if keeper.stdout.readline() != "ready\n":
            keeper.stdin.close()
            reason = last_line(keeper.stderr.read())
            raise CourseError(f"This machine does not allow simulated hosts, not even to root ({reason}).")
        children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()
        yield int(children[0]) if "--fork" in kinds else keeper.pid
    finally:
        # When the first process of a PID namespace ends, the kernel ends all others before it reports the end.
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
        keeper.stderr.close()


def _enter(pid: int, script: str) -> None:
    """Run `script` in the network namespace of process `pid`, with the files of this machine."""
    _do(["nsenter", "--target", str(pid), "--net", "sh", "-c", script])


def _do(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=_environment())
    if done.returncode:
        reason = last_line(done.stderr, f"exit code {done.returncode}")
        raise CourseError(f"This machine does not allow simulated hosts ({' '.join(command)}: {reason}).")
