"""A real Slurm of two nodes on this machine: pretended hosts, a controller on the first, a slurmd on each."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from course_lib.ranks import namespaces
from course_lib.system.errors import CourseError

PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
CONFIGURATION = """\
ClusterName=course
SlurmctldHost=a
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
SlurmdTimeout=5
KillWait=5
ReturnToService=2
NodeName=a,b CPUs=2 RealMemory=100000
PartitionName=all Nodes=ALL Default=YES State=UP
PartitionName=small Nodes=b State=UP
"""
# No cgroups: their version cannot be told in every container. No binding of tasks to cores either: both nodes would
# give out this machine's first one.
CGROUPS = "CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n"
MUNGED = """
own=/run/munge-own
mkdir -p /run/munge $own
munged --force --key-file "$1" --pid-file $own/pid --log-file $own/log --seed-file $own/seed
"""


@dataclass(frozen=True)
class Cluster:
    """Two nodes; commands are given on the first. `folder` is shared by both."""

    nodes: list[namespaces.Host]
    folder: Path
    COURSE = (sys.executable, "-m", "course_lib.command.cli")

    def run(self, command, timeout=120, **options) -> subprocess.CompletedProcess[str]:
        """Run a command on the first node."""
        return self.nodes[0].run(command, timeout=timeout, **options)

    def course(self, *arguments, cwd, timeout=120, **options) -> subprocess.CompletedProcess[str]:
        """Run the `course` command on the first node."""
        return self.run([*self.COURSE, *map(str, arguments)], cwd=cwd, timeout=timeout, **options)

    def jobs(self) -> list[str]:
        """State, number and name of each job that is not at its end."""
        return self.run(["squeue", "--noheader", "--format=%T %i %j"]).stdout.splitlines()

    def told(self, job) -> dict[str, str]:
        """What Slurm says of a job."""
        return dict(re.findall(r"(\w+)=(\S+)", self.run(["scontrol", "show", "job", str(job)]).stdout))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Slurm, for the tests of a module; skipped where its programs, or the rights to pretend hosts, are missing."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    if missing := sorted(package for tool, package in PACKAGES.items() if not shutil.which(tool, path=path)):
        pytest.skip(f"Slurm is not installed here: apt-get install {' '.join(missing)}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="course-slurm-")))
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder))
        (folder / "cgroup.conf").write_text(CGROUPS)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        try:
            variables = {"SLURM_CONF": str(folder / "slurm.conf")}
            nodes = stack.enter_context(namespaces.hosts(2, variables))
        except CourseError as error:
            pytest.skip(str(error))
        daemons = {"a": ["slurmctld", "slurmd"], "b": ["slurmd"]}
        for node in nodes:
            node.run(["sh", "-c", MUNGED, "sh", str(key)])
            for daemon in daemons[node.name]:
                log = stack.enter_context((folder / f"{daemon}-{node.name}.log").open("w"))
                node.popen([daemon, "-D"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        made = Cluster(nodes, folder)
        deadline = time.monotonic() + 30
        while made.run(["sinfo", "--noheader", "--Node", "--partition=all", "--format=%T"]).stdout != "idle\nidle\n":
            if time.monotonic() > deadline:
                logs = "".join(path.read_text() for path in folder.glob("*.log"))
                raise AssertionError(f"Slurm does not come up: {logs}")
            time.sleep(0.2)
        yield made
