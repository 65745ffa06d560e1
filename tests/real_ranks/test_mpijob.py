"""The protocol of Kubeflow's MPI Operator without a cluster: launcher and workers of containers/kubernetes/mpijob.yaml.

The hosts are pretended ones, with the names that pods have. On each, user 1000 uses the image's own settings of ssh,
without any capability, and a key that root has put there for all to read, as Kubernetes does.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from course_lib.ranks import environment, launch, namespaces
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT
from tests.open_folders import let_others_in

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
IMAGE = ROOT / "containers" / "image"
SPEC = yaml.safe_load((ROOT / "containers" / "kubernetes" / "mpijob.yaml").read_text())["spec"]
LAUNCHER, WORKER = (
    SPEC["mpiReplicaSpecs"][role]["template"]["spec"]["containers"][0] for role in ("Launcher", "Worker")
)
PODS = {"a": "train-launcher", "b": "train-worker-0", "c": "train-worker-1"}
NAMES = {host: f"{pod}.train.default.svc" for host, pod in PODS.items()}
USER = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
TRAIN = """
import os, socket, sys
from pathlib import Path
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
rng = np.random.default_rng(1)
x = rng.normal(size=(64, 8)).astype("float32")
y = x @ rng.normal(size=(8, 1)).astype("float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones", input_shape=(8,))])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
mine = slice(hvd.rank(), None, hvd.size())
model.fit(x[mine], y[mine], batch_size=len(x[mine]), epochs=5, verbose=0)
weights = np.concatenate([array.ravel() for array in model.get_weights()])
where = f"{socket.gethostname()} {hvd.rank()} {hvd.size()} {hvd.local_size()} {os.getuid()} {os.environ['POD']}"
np.savez(Path(sys.argv[1]) / f"{hvd.rank()}.npz", weights=weights, where=where)
"""


def place(hosts: list[namespaces.Host], folder: Path) -> None:
    """Put names, user, key and the image's files where the image and the operator have them.

    /etc/ssh, /etc/hosts and /etc/passwd of pretended hosts are theirs alone.
    """
    script = """
set -e
mkdir -p /etc/ssh/mpi /etc/ssh/ssh_config.d
ssh-keygen -q -t ecdsa -b 521 -m PEM -N '' -C job -f /etc/ssh/mpi/id_rsa
cp /etc/ssh/mpi/id_rsa.pub /etc/ssh/mpi/authorized_keys
chmod 644 /etc/ssh/mpi/*
echo 'Include /etc/ssh/ssh_config.d/*.conf' > /etc/ssh/ssh_config
cp "$1/mpi-launcher.conf" /etc/ssh/ssh_config.d/mpi.conf
cp "$1/mpi-worker.conf" /etc/ssh/
chmod 755 /etc/ssh
grep -v ':x:1000:' /etc/passwd > /etc/ssh/passwd || true
echo 'learner:x:1000:1000::/home/learner:/bin/sh' >> /etc/ssh/passwd
cat /etc/ssh/passwd > /etc/passwd
"""
    assert SPEC["sshAuthMountPath"] == "/etc/ssh/mpi"
    names = "".join(f"{host.address} {NAMES[host.name]} {PODS[host.name]}\n" for host in hosts)
    for command in (
        ["sh", "-c", script, "sh", str(IMAGE)],
        ["sh", "-c", 'printf "%s" "$1" >> /etc/hosts', "sh", names],
    ):
        done = hosts[0].run(command)
        assert done.returncode == 0, done.stderr
    for host in hosts:
        assert host.run(["hostname", PODS[host.name]]).returncode == 0
    # As the operator writes it: here with a slot for each worker.
    (folder / "hostfile").write_text("".join(f"{NAMES[host.name]} slots=1\n" for host in hosts[1:]))


@pytest.fixture(scope="module")
def folder():
    """A folder of user 1000, as the pods' workspace. (pytest's own are closed to others.)"""
    with tempfile.TemporaryDirectory(prefix="course-mpijob-") as name:
        folder = Path(name)
        for path in (folder, folder / "one", folder / "two"):
            path.mkdir(exist_ok=True)
            os.chown(path, 1000, 1000)
        (folder / "train.py").write_text(TRAIN)
        yield folder


@pytest.fixture(scope="module")
def job(folder):
    """job(host, command): run a command as the pods' user with the launcher's variables; workers are up."""
    if "mpi" not in launch.controllers():
        pytest.skip("Horovod was built without mpi here")
    with contextlib.ExitStack() as stack:
        try:
            hosts = stack.enter_context(namespaces.hosts(3))
        except CourseError as error:
            pytest.skip(str(error))
        place(hosts, folder)
        for host in hosts:
            let_others_in(host, {Path(sys.base_prefix), Path(sys.prefix), ROOT})
        variables = {
            "HOME": "/home/learner",
            "TMPDIR": "/tmp",
            **environment.ONE_THREAD,
            **environment.TENSORFLOW,
        }
        plain = ["env", "-u", "XDG_CACHE_HOME", *(f"{name}={value}" for name, value in variables.items())]
        assert WORKER["command"] == ["course-worker"]
        for host in hosts[1:]:
            log = stack.enter_context((folder / f"{host.name}.log").open("w"))
            worker = [*USER, *plain, f"POD=of {host.name}", 'ODD=quote " and\nline', str(IMAGE / "course-worker")]
            host.popen(worker, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        given = {variable["name"]: variable["value"] for variable in LAUNCHER["env"]}
        of_the_operator = {
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_default_hostfile": str(folder / "hostfile"),
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
            "OMPI_MCA_orte_set_default_slots": "1",
        }
        extra = [f"{name}={value}" for name, value in {**given, **of_the_operator}.items()]

        def run(command, user=USER):
            return hosts[0].run([*user, *plain, *extra, *command], cwd=folder, timeout=180)

        deadline = time.monotonic() + 30
        while run(["ssh", NAMES["b"], "true"]).returncode or run(["ssh", NAMES["c"], "true"]).returncode:
            assert time.monotonic() < deadline, "".join(path.read_text() for path in folder.glob("*.log"))
            time.sleep(0.2)
        yield run


def test_the_launcher_trains_on_both_workers_what_one_process_does(job, folder):
    two = job([*LAUNCHER["command"], "python", "train.py", "two"])
    assert two.returncode == 0, two.stderr
    one = job(["env", "POD=none", "python", "train.py", "one"])
    assert one.returncode == 0, one.stderr
    ranks = [np.load(folder / "two" / f"{rank}.npz") for rank in range(2)]
    assert [str(rank["where"]) for rank in ranks] == [
        "train-worker-0 0 2 1 1000 of b",  # each finds the variables of its own pod
        "train-worker-1 1 2 1 1000 of c",
    ]
    assert (ranks[0]["weights"] == ranks[1]["weights"]).all()
    np.testing.assert_allclose(ranks[0]["weights"], np.load(folder / "one" / "0.npz")["weights"], atol=1e-6)


def test_the_job_fails_if_a_rank_fails(job):
    assert job([*LAUNCHER["command"], "sh", "-c", "exit $((3 * OMPI_COMM_WORLD_RANK))"]).returncode == 3


def test_only_the_holder_of_the_job_s_key_gets_in(job):
    assert job(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "one/other"]).returncode == 0
    ssh = [
        "ssh",
        "-F",
        "none",
        "-p",
        "2222",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-i",
    ]
    assert "Permission denied (publickey)" in job([*ssh, "one/other", NAMES["b"], "true"]).stderr
    assert job([*ssh, "/etc/ssh/mpi/id_rsa", NAMES["b"], "true"]).returncode == 0


def test_the_launcher_talks_to_no_host_without_the_job_s_key(job):
    """A host that answers in a worker's place, as one that got its address, has another key."""
    other = ["-o", "KnownHostsCommand=/usr/bin/sed s/^/other./ /etc/ssh/mpi/id_rsa.pub"]
    assert "Host key verification failed" in job(["ssh", *other, NAMES["b"], "true"]).stderr
