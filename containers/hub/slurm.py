"""Labs as jobs of Slurm, by batchspawner 1.3: for a JupyterHub of your own on a machine that submits jobs.

Install environment/requirements.lock there and, with `npm ci`, the package-lock.json beside it. The hub runs as root.
Its users are the cluster's, so the default login is PAM. Its jupyterhub_config.py:

    import sys
    sys.path.insert(0, "/shared/course/containers/hub")
    import slurm

    c = get_config()
    slurm.configure(c, slurm.Cluster(state="/shared/class", image="/shared/cpu-learner.sif", instructors="teachers"))
    c.LabSpawner.req_partition = "short"  # also req_account, req_runtime, req_gres="gpu:2", req_options
    c.Authenticator.allowed_groups = {"class", "teachers"}
    c.ConfigurableHTTPProxy.command = "/srv/hub/node_modules/.bin/configurable-http-proxy"  # the folder of `npm ci`

The class's folder is on a file system that all nodes share. In it each user owns a workspace and an inbound folder;
instructors, who are a Unix group, read all inbound folders and write all feedback, which the learner reads: the file
system must know POSIX access control lists. Fill `exchange/outbound` once:

    apptainer exec --bind /shared/class/exchange/outbound:/outbound cpu-learner.sif cp -rT /course/handout /outbound
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lab_settings
from batchspawner import SlurmSpawner
from traitlets import Instance, Unicode

NOBODY = 2**32 - 1  # the id in entries of an access control list that name no user
PORT_SCRIPT = Path(__file__).resolve().parents[1] / "slurm" / "lab_port.py"
JOB = """#!/bin/bash
#SBATCH --job-name=course-lab
#SBATCH --output={{workspace}}/.lab-%j.log
#SBATCH --chdir={{workspace}}
#SBATCH --export={{keepvars}}
#SBATCH --cpus-per-task={{nprocs}}
#SBATCH --mem={{memory}}
{% if partition %}#SBATCH --partition={{partition}}
{% endif %}{% if account %}#SBATCH --account={{account}}
{% endif %}{% if runtime %}#SBATCH --time={{runtime}}
{% endif %}{% if gres %}#SBATCH --gres={{gres}}
{% endif %}{% if options %}#SBATCH {{options}}
{% endif %}
set -eu
{{prologue}}
JUPYTERHUB_SERVICE_URL=$(python3 {{port_script}})
export JUPYTERHUB_SERVICE_URL COURSE_ADDRESS=0.0.0.0
{{enter}}
"""
# The folders of /, and the lab's folders that the node does not have.
BUBBLEWRAP = """top=()
for path in /*; do
    case $path in /exchange | /workspace | /data) ;; *) top+=(--dev-bind "$path" "$path") ;; esac
done
exec bwrap "${top[@]}" """


@dataclass(frozen=True)
class Cluster:
    """The class's folders and images on the cluster.

    Attributes:
        state: the class's folder, shared by all nodes.
        image: learners' image (.sif), for Apptainer; instructors get `instructor_image`.
        course: in place of images: the course's folder after `course setup`, with containers/image/requirements.txt in
            its environment. Learners can then read it, solutions included, and labs need bubblewrap.
        instructors: Unix group of those who collect and grade.
        data: folder with the data sets.
    """

    state: str
    instructors: str
    image: str = ""
    instructor_image: str = ""
    course: str = ""
    data: str = ""


class LabSpawner(SlurmSpawner):
    """Submits a user's lab as a job of that user, with the mounts that labs of one host have."""

    cluster = Instance(Cluster).tag(config=True)
    req_enter, req_workspace = Unicode(), Unicode()
    req_port_script = Unicode(shlex.quote(str(PORT_SCRIPT)))

    async def start(self) -> tuple[str, int]:
        """Make the user's folders, submit the job, wait until the lab has reported its port."""
        role = role_of(self.user.name, self.cluster)
        make_folders(self.user.name, role, self.cluster)
        self.req_workspace = f"{self.cluster.state}/workspaces/{self.user.name}"
        self.req_enter = enter(self.user.name, role, self.cluster, gpus=bool(self.req_gres))
        return await super().start()


def configure(c: Any, cluster: Cluster) -> None:
    """Let the hub start labs on a cluster."""
    c.JupyterHub.spawner_class = LabSpawner
    c.JupyterHub.hub_ip = "0.0.0.0"
    c.JupyterHub.cleanup_servers = False
    c.LabSpawner.cluster = cluster
    c.LabSpawner.batch_script = JOB
    c.LabSpawner.env_keep.extend(["SLURM_CONF"])
    c.LabSpawner.exec_prefix = "runuser -u {username} --"
    c.LabSpawner.req_nprocs, c.LabSpawner.req_memory, c.LabSpawner.req_runtime = "2", "3G", "8:00:00"
    c.LabSpawner.environment = {"COURSE_DATA_DIR": "/data"} if cluster.data else {}
    c.Spawner.default_url = "/lab/tree/Welcome.md"
    c.Spawner.http_timeout = 120


def role_of(name: str, cluster: Cluster) -> str:
    """Return "instructor" for members of the instructors' Unix group, else "learner"."""
    group = grp.getgrnam(cluster.instructors).gr_gid
    return "instructor" if group in os.getgrouplist(name, pwd.getpwnam(name).pw_gid) else "learner"


def make_folders(name: str, role: str, cluster: Cluster) -> None:
    """Make a user's folders. The instructors' group can read a learner's inbound folder and write the feedback folder.

    The feedback folder belongs to root: its owner could put links there, which `course return` would follow. The
    learner can read it by an access control list, which the file system must support.
    """
    user, group = pwd.getpwnam(name), grp.getgrnam(cluster.instructors).gr_gid
    state = Path(cluster.state)
    (state / "exchange/outbound").mkdir(parents=True, exist_ok=True)
    _make(state / "workspaces", name, user.pw_uid, user.pw_gid, 0o700)
    for folder in ("exchange/inbound", "exchange/feedback"):
        (state / folder).mkdir(exist_ok=True)
    if role == "learner":
        _make(state / "exchange/inbound", name, user.pw_uid, group, 0o2750)
        _make(state / "exchange/feedback", name, 0, group, 0o2770)
        _let_read(state / "exchange/feedback" / name, user.pw_uid)


def _make(parent: Path, name: str, user: int, group: int, mode: int) -> None:
    """Make a folder in one that only root can write."""
    parent.mkdir(exist_ok=True)
    folder = parent / name
    folder.mkdir(exist_ok=True)
    os.chown(folder, user, group, follow_symlinks=False)
    folder.chmod(mode)


def _let_read(folder: Path, user: int) -> None:
    """Let a user read a folder and its future files, beside its owner and group: acl(5), getxattr(2)."""
    entries = ((0x01, 7, NOBODY), (0x02, 5, user), (0x04, 7, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        for attribute in ("system.posix_acl_access", "system.posix_acl_default"):
            os.setxattr(folder, attribute, acl, follow_symlinks=False)
    except OSError as error:
        raise RuntimeError(f"{folder} needs a file system with POSIX access control lists: {error.strerror}.") from None


def enter(name: str, role: str, cluster: Cluster, gpus: bool) -> str:
    """Return a job's last command: the lab, with the mounts of `lab_settings`. Slurm gives each lab its own cores."""
    settings = {"state": cluster.state, "gpus_each": 1, "data": cluster.data}
    mounts = lab_settings.mounts(name, role, Path(cluster.state), settings)
    mounts = [line.split(":") for line in mounts if ":/etc/" not in line]
    if cluster.course:
        binds = [("--ro-bind" if mode == "ro" else "--bind", source, target) for source, target, mode in mounts]
        cache = {"XDG_CACHE_HOME": "/workspace/.cache", "KERAS_HOME": "/workspace/.cache/keras"}
        variables = [("--setenv", variable, value) for variable, value in cache.items()]
        lab = [f"{cluster.course}/.venv/bin/course", "lab", "--dir", "/workspace", "--no-browser"]
        return BUBBLEWRAP + shlex.join([word for part in (*binds, *variables) for word in part] + lab)
    binds = [("--bind", ":".join(mount)) for mount in mounts]
    image = cluster.instructor_image if role == "instructor" else cluster.image
    words = ["apptainer", "run", "--contain", "--pid", "--no-home", *["--nv"] * gpus]
    return "exec " + shlex.join([*words, *(word for bind in binds for word in bind), image])
