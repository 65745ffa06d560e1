"""Time what two ranks do on two pretended hosts, while the link between the hosts is limited.

    for link, by_rank in measured(function, {"1 Gbit/s": "1gbit", "no limit": None}, timeout=100):
        ...

The hosts are those of `namespaces`, one rank with one thread on each.
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
    """For each link its name, and what `function()` returned on each of the two ranks.

    Args:
        function: goes to the ranks as with `launch.call`; it calls `hvd.init()` itself.
        links: name → what a host may send, as `namespaces.Host.limit` takes it.
        timeout: seconds that one link may take.

    Raises CourseError as `namespaces.hosts` and `Host.limit` do, and where a rank fails or a link takes longer.
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
    """Bytes that the network card of the host that this process is on has sent, headers included."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    (line,) = [line for line in lines if line.strip().startswith("eth0:")]
    return int(line.partition(":")[2].split()[8])


def main() -> None:
    """On the first of the hosts: the function of the folder that is named, on both."""
    folder = Path(sys.argv[1])
    function = cloudpickle.loads((folder / _FUNCTION).read_bytes())
    (folder / _RESULTS).write_bytes(cloudpickle.dumps(launch.call(function, hosts="a:1,b:1")))


if __name__ == "__main__":
    main()
