"""Slurm's answers, by programs that stand in for its own; a real one is in tests/slurm."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from course_lib.ranks import slurm
from course_lib.system.errors import CourseError

COURSE = [sys.executable, "-m", "course_lib.command.cli"]
SINFO = "all* 1\nall* 3\ngpu 2\n"
JOBS = """\
JobId=7 JobName=JobState=COMPLETED UserId=root(0) JobState=RUNNING Reason=None ExitCode=0:0 NodeList=n[1-2] Command=x y
JobId=8 JobName=course JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0 NodeList=n1
JobId=9 JobName=course JobState=PENDING Reason=Resources ExitCode=0:0 NodeList=(null)
JobId=10 JobName=course JobState=FAILED Reason=RaisedSignal:11(Segmentation_fault) ExitCode=0:11 NodeList=n1
"""


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Let a program of Slurm's print this text and end with this code."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)

    def answers(program, text="", errors="", code=0):
        for name, content in (("out", text), ("err", errors)):
            (tmp_path / f"{program}.{name}").write_text(content)
        path = tmp_path / program
        path.write_text(f'#!/bin/sh\ncat "$0.out"; cat "$0.err" >&2; exit {code}\n')
        path.chmod(0o755)

    answers("sbatch", "7\n")
    answers("sinfo", SINFO)
    answers("scontrol", JOBS)
    return answers


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        ({}, 0),
        ({"SBATCH_GPUS": "4"}, 4),
        ({"SBATCH_GPUS": "a100:4"}, 4),
        ({"SBATCH_GPUS_PER_NODE": "8", "SBATCH_GPUS": "16"}, 8),
        ({"SBATCH_GRES": "gpu:a100:2"}, 2),
        ({"SBATCH_GRES": "gpu"}, 0),
    ],
)
def test_gpus_that_a_job_asks_for_are_counted(answers, monkeypatch, asked, gpus):
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert slurm.gpus_asked() == gpus


@pytest.mark.parametrize(
    "text, slots", [("1", [1]), ("2(x3)", [2, 2, 2]), ("4,2(x2)", [4, 2, 2]), ("1(x2),8", [1, 1, 8])]
)
def test_tasks_of_each_node(text, slots):
    assert slurm.per_node(text) == slots


@pytest.mark.parametrize(
    "variables, hosts",
    [
        ({"SLURM_TASKS_PER_NODE": "2(x2)"}, "n1:2,n2:2"),
        ({"SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_GPUS_ON_NODE": "4"}, "n1:4,n2:4"),
        ({"SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_NTASKS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "4"}, "n1:2,n2:2"),
        ({}, "n1:1,n2:1"),
    ],
)
def test_the_nodes_of_a_job(variables, hosts, answers, monkeypatch):
    answers("scontrol", "n1\nn2\n")
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", **variables}.items():
        monkeypatch.setenv(name, value)
    assert slurm.inside()
    assert slurm.hosts() == hosts
    with pytest.raises(CourseError, match="This job has 2 nodes, not 3: remove -N"):
        slurm.hosts(3)


def test_states(answers):
    assert slurm.states(["7", "8", "9", "10", "11"]) == {
        "7": slurm.State("RUNNING", "None", "n[1-2]", 0),
        "8": slurm.State("FAILED", "NonZeroExitCode", "n1", 3),
        "9": slurm.State("PENDING", "Resources", "", 0),
        "10": slurm.State("FAILED", "RaisedSignal:11(Segmentation_fault)", "n1", 139),
        "11": slurm.State("UNKNOWN"),
    }
    answers("scontrol", errors="slurm_load_jobs error: Invalid job id specified\n", code=1)
    assert slurm.states(["8"])["8"].ended
    answers("scontrol", errors="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", code=1)
    with pytest.raises(CourseError, match="Unable to contact slurm controller"):
        slurm.states(["8"])


@pytest.mark.parametrize(
    "state, code, sentence",
    [
        ("COMPLETED", 0, ""),
        ("FAILED", 3, ""),
        ("CANCELLED", 130, "was cancelled"),
        ("TIMEOUT", 124, "SBATCH_TIMELIMIT"),
        ("NODE_FAIL", 2, "A node of job 7 failed (n1)"),
        ("OUT_OF_MEMORY", 137, "SBATCH_MEM_PER_NODE"),
        ("PREEMPTED", 2, "PREEMPTED"),
        ("UNKNOWN", 2, "unknown"),
    ],
)
def test_how_a_job_ended(state, code, sentence):
    ending = slurm.ending(slurm.State(state, nodes="n1", code=3 if state == "FAILED" else 0), "7")
    assert ending[0] == code
    assert sentence in ending[1] and bool(ending[1]) == bool(sentence)


@pytest.mark.parametrize("nodes", [1, 4])
def test_as_many_nodes_as_there_are(nodes, answers):
    assert slurm.check(nodes) is None


@pytest.mark.parametrize(
    "nodes, partition, sentence",
    [
        (5, None, "The partition all has 4 nodes, not 5: give -N 4 or less."),
        (3, "gpu", "The partition gpu has 2 nodes, not 3: give -N 2 or less."),
        (1, "cpu", "There is no partition cpu (SBATCH_PARTITION) here; there is all, gpu."),
        (0, None, "A job needs at least one node, not 0: give -N 1 or more."),
    ],
)
def test_other_numbers_are_refused(nodes, partition, sentence, answers, monkeypatch):
    if partition:
        monkeypatch.setenv("SBATCH_PARTITION", partition)
    with pytest.raises(CourseError) as refused:
        slurm.check(nodes)
    assert str(refused.value) == sentence
    assert refused.value.code == 2


@pytest.mark.parametrize("arguments", ["run --slurm x.py", "run --slurm -N 2 x.py", "grade --slurm ."])
def test_without_slurm_it_is_said_where_to_start_this(arguments, tmp_path):
    (tmp_path / "x.py").touch()
    env = {**os.environ, "PATH": str(tmp_path)}
    env = {name: value for name, value in env.items() if not name.startswith("SLURM_")}
    done = subprocess.run([*COURSE, *arguments.split()], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("course: Slurm is not installed here (no `sbatch` on the PATH)")
    assert done.stderr.count("\n") == 1


def test_nodes_without_slurm_and_hosts_with_it_are_refused(tmp_path):
    (tmp_path / "x.py").touch()
    for arguments in ("run -N 2 x.py", "run --slurm -H a:1 x.py"):
        done = subprocess.run([*COURSE, *arguments.split()], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr in (
            "course: -N works only with --slurm: add --slurm, or remove -N.\n",
            "course: With --slurm, Slurm chooses the hosts: remove -H and --hostfile.\n",
        )
