"""Pretended hosts on this machine, to try what needs several: own names, addresses, processes and SSH servers.

    with hosts(2) as (a, b):
        a.run(["horovodrun", "-np", "2", "-H", "a:1,b:1", "python", "train.py"])

A host is a set of Linux namespaces (network, host name, mounts, processes) that shares the processors and the files
of this machine. A switch (a bridge in a namespace of its own) joins the hosts. In them, `ssh` goes from each to each
without a word, with keys made for the occasion; what they find under /etc/ssh and at home is theirs alone, and
nothing of this machine's own is written to. No namespace has a name: each lives as long as its first process, which
ends when the end of a pipe closes that this process holds. So nothing is left, whatever ends it.
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
# With the folder to remove at the end, for the case that this process can't.
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
    """One of the hosts: its name, its address, and the process (as this machine numbers it) that keeps it alive."""

    name: str
    address: str
    pid: int
    _env: Mapping[str, str]

    def popen(self, command: Sequence[str], cwd: str | Path = "/", **options: Any) -> subprocess.Popen:
        """Start `command` on this host, in the folder `cwd`; `options` as for subprocess.Popen.

        The process that you get stands outside: ending it does not end the command. Leaving `hosts` does.
        """
        env = {**os.environ, **(options.pop("env", None) or {}), **self._env}
        entered = ["nsenter", "--target", str(self.pid), "--net", "--uts", "--mount", "--pid"]
        return subprocess.Popen([*entered, "env", f"--chdir={cwd}", *command], env=env, **options)

    def run(
        self, command: Sequence[str], timeout: float | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` on this host to its end; return its exit code and what it printed."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with self.popen(command, **{**pipes, **options}) as process:
            try:
                output, errors = process.communicate(timeout=timeout)
            finally:
                process.kill()
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def limit(self, rate: str | None) -> None:
        """Let this host send at most `rate` (as `tc` writes it: "1gbit", "100mbit"); None: as fast as it can.

        Raises CourseError where `tc` or the kernel's token bucket is missing.
        """
        _enter(self.pid, "tc qdisc delete dev eth0 root 2>/dev/null || true")
        if rate is not None:  # a small bucket: what is in it goes faster than the rate
            _enter(self.pid, f"tc qdisc add dev eth0 root tbf rate {rate} burst 32kb latency 50ms")


@contextlib.contextmanager
def hosts(count: int = 2, env: Mapping[str, str] | None = None) -> Iterator[list[Host]]:
    """`count` hosts named a, b, c, … (at most 26), for as long as the block runs.

    Who logs in finds the variables `env`, this Python first on the PATH, and the data of this machine.

    Raises CourseError where they can't be had: not root, not Linux, a tool that is missing, a container that
    must not make namespaces.
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
        raise CourseError("Pretended hosts are made of Linux namespaces: try this on Linux.")
    missing = sorted({package for tool, package in _PACKAGES.items() if not _path(tool)})
    if missing:
        raise CourseError(
            f"Pretended hosts need the packages iproute2 and openssh-server: apt-get install {' '.join(missing)}"
        )
    if os.geteuid():
        raise CourseError(
            "Pretended hosts (with the packages iproute2 and openssh-server) are for root: start this with sudo."
        )


def _path(tool: str) -> str:
    return shutil.which(tool, path=_environment()["PATH"]) or ""


def _environment() -> dict[str, str]:
    """This process's, with the administrator's tools on the PATH."""
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}


def _login(folder: Path) -> dict[str, str]:
    """What is in the environment of who logs in: a home and temporary files apart, this Python, this machine's data."""
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
    """The files that the hosts see in place of this machine's: etc/, home/ and tmp/."""
    ssh = folder / "etc" / "ssh"
    for path in (ssh, folder / "home", folder / "tmp"):
        path.mkdir(parents=True)
    me = pwd.getpwuid(os.geteuid())
    users = [user for user in pwd.getpwall() if user.pw_name != me.pw_name]
    users.append(pwd.struct_passwd((*me[:5], str(folder / "home"), "/bin/sh")))
    (folder / "etc" / "passwd").write_text("".join(":".join(map(str, user)) + "\n" for user in users))
    (folder / "etc" / "shadow").write_text(f"{me.pw_name}:*:19000:0:99999:7:::\n")  # sshd turns locked accounts away
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
    """New namespaces in which `script` was run, for as long as the block runs; the number of their first process."""
    keeper = subprocess.Popen(
        ["unshare", *kinds, "sh", "-c", f"set -e\n{script}\necho ready\nread end", "sh", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
        start_new_session=True,  # Ctrl-C is for the commands that run on the hosts
    )
    assert keeper.stdin
    assert keeper.stdout
    assert keeper.stderr
    try:
        if keeper.stdout.readline() != "ready\n":
            keeper.stdin.close()
            reason = last_line(keeper.stderr.read())
            raise CourseError(f"This machine makes no pretended hosts, not even for root ({reason}).")
        children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()
        yield int(children[0]) if "--fork" in kinds else keeper.pid
    finally:
        # The first process of a process namespace takes all others with it, and is gone only after they are.
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
        keeper.stderr.close()


def _enter(pid: int, script: str) -> None:
    """Run `script` in the network of process `pid`, with the files of this machine."""
    _do(["nsenter", "--target", str(pid), "--net", "sh", "-c", script])


def _do(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=_environment())
    if done.returncode:
        reason = last_line(done.stderr, f"exit code {done.returncode}")
        raise CourseError(f"This machine makes no pretended hosts ({' '.join(command)}: {reason}).")
