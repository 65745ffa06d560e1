"""Run a function on two ranks on two simulated hosts, with a limited link between the hosts.

    for link, by_rank in measured(function, {"1 Gbit/s": "1gbit", "no limit": None}, timeout=100):
        ...

The hosts are from `namespaces`; each runs one rank with one thread.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from course_lib.ranks import environment, launch, namespaces
from course_lib.system.errors import CourseError, last_line
from course_lib.system.paths import ROOT

_FUNCTION, _RESULTS = "function.pkl", "results.pkl"


def measured(
    function: Callable[[], Any], links: Mapping[str, str | None], *, timeout: float
) -> Iterator[tuple[str, list]]:
    """Yield, for each link, its name and the results of `function()` on the two ranks.

    Args:
        function: sent to the ranks as in `launch.call`; it calls `hvd.init()` itself.
        links: name → rate as in `namespaces.Host.limit`.
        timeout: maximum seconds for one link.

    Raises CourseError as `namespaces.hosts` and `Host.limit` do, if a rank fails, or after the timeout.
    """
    with (
        tempfile.TemporaryDirectory(prefix="course-") as folder,
        namespaces.hosts(2, {**environment.ONE_THREAD, **environment.TENSORFLOW}) as hosts,
    ):
        (Path(folder) / _FUNCTION).write_bytes(cloudpickle.dumps(function))
        for link, rate in links.items():
            for host in hosts:
                host.limit(rate)
            program = [sys.executable, "-m", "course_lib.notebook.between_hosts", folder]
            try:
                done = hosts[0].run(program, cwd=ROOT, timeout=timeout)
            except subprocess.TimeoutExpired:
                raise CourseError(f"{link}: the ranks took longer than {timeout:g} s.") from None
            if done.returncode:
                raise CourseError(f"{link}: {last_line(done.stderr, f'exit code {done.returncode}')}")
            yield link, cloudpickle.loads((Path(folder) / _RESULTS).read_bytes())


def card_bytes() -> int:
    """Bytes that the network card of this process's host has sent, including headers."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    (line,) = [line for line in lines if line.strip().startswith("eth0:")]
    return int(line.partition(":")[2].split()[8])


def main() -> None:
    """Program on the first host: run the function in the folder `sys.argv[1]` on both hosts."""
    folder = Path(sys.argv[1])
    function = cloudpickle.loads((folder / _FUNCTION).read_bytes())
    (folder / _RESULTS).write_bytes(cloudpickle.dumps(launch.call(function, hosts="a:1,b:1")))


if __name__ == "__main__":
    main()
