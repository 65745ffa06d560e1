"""Runs as jobs of a real Slurm: what they print, how they end, what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

from course_lib.system.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

REFERENCE = ROOT / "assessment" / "reference" / "assessment.py"
TELL = """
import hashlib, json, socket

# Batch norm's averages are each rank's own.
weights = hashlib.sha256(b"".join(array.numpy().tobytes() for array in model.trainable_variables)).hexdigest()
seen = {"host": socket.gethostname(), "size": hvd.size(), "local_rank": hvd.local_rank(), "weights": weights}
open(f"rank-{hvd.rank()}.json", "w").write(json.dumps(seen))
"""
HELLO = """\
import glob, os, socket, sys, time
print(socket.gethostname(), *sys.argv[1:])
if sys.argv[1] == "wait":
    time.sleep(600)
rank, size = os.environ.get("HOROVOD_RANK", "0"), int(os.environ.get("HOROVOD_SIZE", 1))
open(f"printed-{rank}", "w").close()
if rank == sys.argv[1]:
    while len(glob.glob("printed-*")) < size:
        time.sleep(0.1)
    sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with scripts; afterwards the course has left nothing else in it."""
    (tmp_path / "hello.py").write_text(HELLO)
    yield tmp_path
    assert not list(tmp_path.glob(".course-job-*"))


def nothing_runs(cluster):
    ask = ["sh", "-c", "ps -eo args | grep -E '[r]ank.py|[h]orovodrun|[s]upervise|course_lib.[c]li'"]
    deadline = time.monotonic() + 15
    while left := cluster.jobs() + [node.run(ask).stdout for node in cluster.nodes if node.run(ask).stdout]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_the_reference_on_two_nodes(cluster, folder):
    (folder / "reference.py").write_text(REFERENCE.read_text() + TELL)
    done = cluster.course("run", "--slurm", "-N", 2, "reference.py", cwd=folder, env={"COURSE_SLICE": "1280"})
    assert done.returncode == 0, done.stdout + done.stderr
    seen = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert [(rank["host"], rank["size"], rank["local_rank"]) for rank in seen] == [("a", 2, 0), ("b", 2, 0)]
    assert seen[0]["weights"] == seen[1]["weights"]  # bit for bit
    assert "rank 0 │ Training on 1,152 images of" in done.stdout
    assert "course: Job 1 runs on a,b." in done.stderr
    nothing_runs(cluster)


def test_a_rank_s_failure_is_the_job_s(cluster, folder):
    done = cluster.course("run", "--slurm", "-N", 2, "-np", 4, "hello.py", "--", "2", "a b", "$c", cwd=folder)
    assert done.returncode == 3
    assert sorted(line for line in done.stdout.splitlines()) == [
        f"rank {rank} │ {host} 2 a b $c" for rank, host in enumerate("aabb")
    ]
    assert "course: Rank 2 failed with exit code 3." in done.stderr


@pytest.fixture
def waiting(cluster, folder):
    """A run whose ranks wait: its process on the first node, and its number there."""
    words = ["sh", "-c", 'echo $$; exec "$@"', "sh", *cluster.COURSE, "run", "--slurm", "-N", "2", "hello.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with cluster.nodes[0].popen([*words, "--", "wait"], cwd=folder, **pipes) as process:
        number = process.stdout.readline().strip()
        assert sorted(process.stdout.readline() for _ in range(2)) == ["rank 0 │ a wait\n", "rank 1 │ b wait\n"]
        yield process, number
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_the_job(number, cluster, waiting):
    process, pid = waiting
    job = cluster.jobs()[0].split()[1]
    cluster.run(["kill", f"-{int(number)}", pid])
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"course: Stopped; job {job} is cancelled.\n" in errors
    assert "Traceback" not in errors
    assert cluster.told(job)["JobState"] == "CANCELLED"
    nothing_runs(cluster)


def test_whoever_cancels_the_job_ends_the_command(cluster, waiting):
    process, _ = waiting
    job = cluster.jobs()[0].split()[1]
    cluster.run(["scancel", job])
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith(f"course: Job {job} was cancelled.\n")


def test_the_job_script(cluster, folder):
    script = ROOT / "containers" / "slurm" / "run.sbatch"
    words = ["sbatch", "--wait", f"--export=ALL,COURSE={ROOT}", "--ntasks-per-node=1"]
    assert cluster.run([*words, script, "hello.py", "--", "1"], cwd=folder).returncode == 3
    (output,) = folder.glob("course-*.out")
    lines = output.read_text().splitlines()
    assert {"rank 0 │ a 1", "rank 1 │ b 1", "course: Rank 1 failed with exit code 3."} <= set(lines)
    output.unlink()
    assert cluster.run(["sbatch", "--wait", script, "hello.py"], cwd=folder).returncode == 2
    (output,) = folder.glob("course-*.out")
    assert output.read_text().startswith(f"course: There is no {folder}/course: ")


REFUSED = {
    "too many nodes": ("run --slurm -N 3 hello.py", {}, "The partition all has 2 nodes, not 3: give -N 2 or less"),
    "a small partition": (
        "run --slurm -N 2 hello.py",
        {"SBATCH_PARTITION": "small"},
        "The partition small has 1 node, not 2",
    ),
    "an unknown partition": (
        "run --slurm hello.py",
        {"SBATCH_PARTITION": "none"},
        "There is no partition none (SBATCH_PARTITION) here; there is all, small.",
    ),
    "no node": ("run --slurm -N 0 hello.py", {}, "A job needs at least one node, not 0"),
    "fewer ranks than nodes": ("run --slurm -N 2 -np 1 hello.py", {}, "2 nodes need at least 2 ranks, not 1"),
    "what Slurm refuses": (
        "run --slurm hello.py",
        {"SBATCH_GPUS_PER_NODE": "4"},
        "Slurm rejects the job: Invalid generic resource (gres) specification.",
    ),
    "no script": ("run --slurm -N 2 none.py", {}, "There is no script none.py"),
    "another number than the job's": (
        "run --slurm -N 3 hello.py",
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a,b"},
        "This job has 2 nodes, not 3",
    ),
    "a folder of none": ("grade --slurm none", {}, "is not a folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused_in_a_sentence(case, cluster, folder):
    arguments, variables, sentence = REFUSED[case]
    # As a login might set them: what `run` gives to the hosts' own environment comes last.
    words = ["env", *(f"{name}={value}" for name, value in variables.items()), *cluster.COURSE, *arguments.split()]
    done = cluster.run(words, cwd=folder)
    assert done.returncode == (1 if "grade" in arguments else 2)
    assert done.stderr.startswith("course: ") and done.stderr.count("\n") == 1
    assert sentence in done.stderr
    assert cluster.jobs() == []


def test_a_controller_that_does_not_answer(cluster, folder):
    configuration = folder / "slurm.conf"
    configuration.write_text((cluster.folder / "slurm.conf").read_text() + "SlurmctldPort=9\n")
    words = ["env", f"SLURM_CONF={configuration}", *cluster.COURSE, "run", "--slurm", "hello.py"]
    done = cluster.run(words, cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("course: Slurm's controller does not answer: `sinfo` says: Unable to contact")
