"""The assessment across two hosts: its verdicts, what its sandboxes keep there, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from course_lib.command.assess.sandbox import bubblewrap, host_sandboxes
from course_lib.command.classroom import conversions
from course_lib.ranks import evidence, launch, namespaces
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

pytestmark = [
    *(pytest.mark.alone, pytest.mark.slow, pytest.mark.ranks, pytest.mark.rare(group="hosts")),
    pytest.mark.skipif(bool(bubblewrap.available()), reason=bubblewrap.available()),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores, which the hosts share"),
]
TWO = "a:1,b:1"
COURSE = [sys.executable, "-m", "course_lib.command.cli"]
REFERENCE = ROOT / "assessment" / "reference" / "assessment.py"


@pytest.fixture(scope="module")
def hosts():
    if "gloo" not in launch.controllers():
        pytest.skip("Horovod was built without gloo here")
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(namespaces.hosts(2, {**launch.ONE_THREAD, "TF_CPP_MIN_LOG_LEVEL": "2"}))
        except CourseError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("across")
    (folder / "hosts").write_text("a slots=1\nb slots=1\n")
    return folder


def test_the_ranks_of_the_reference_agree_bit_for_bit(hosts, work):
    """By the command, with a probe in each rank that keeps the weights."""
    settings = {"COURSE_PROBE": str(work / "probe"), "COURSE_SLICE": "1280", "COURSE_WEIGHTS": str(work / "weights.h5")}
    (work / "probe").mkdir()
    done = hosts[0].run([*COURSE, "run", "--hostfile", "hosts", str(REFERENCE)], cwd=work, env=settings, timeout=200)
    assert done.returncode == 0, done.stderr
    seen = evidence.read(work / "probe", 2, launch.Result(0, 0.0))
    assert [rank.last("init")["local_size"] for rank in seen.ranks] == [1, 1]
    assert all(len(rank.weights) > 10 for rank in seen.ranks)
    assert seen.weights_differ(trainable=True) == 0.0  # batch norm's averages are each rank's own
    assert (work / "weights.h5").exists()


@pytest.fixture(scope="module")
def graded(hosts, work):
    """What `course assess` says of the reference, across both hosts."""
    words = [*COURSE, "assess", str(REFERENCE), "-H", TWO, "--profile", "short", "--json", "graded.json"]
    done = hosts[0].run(words, cwd=work, timeout=400)
    assert (work / "graded.json").exists(), done.stderr
    return done, json.loads((work / "graded.json").read_text())


def test_the_reference_passes_across_two_hosts(graded):
    done, found = graded
    assert (done.returncode, found["passed"], found["ranks"]) == (0, True, 2), found
    reasons = {criterion["id"]: criterion["reason"] for criterion in found["criteria"] if not criterion["passed"]}
    assert reasons == {}
    (averaged,) = (criterion["reason"] for criterion in found["criteria"] if criterion["id"] == "averaged")
    assert "all ranks hold the same weights" in averaged
    assert "On 2 ranks on 2 hosts" in done.stderr


def test_the_report_says_what_is_not_kept_there(graded):
    done, found = graded
    assert found["sandbox"] == "bubblewrap"
    assert found["weaknesses"] == list(host_sandboxes.WEAKNESSES)
    assert "the script can use the network" in " ".join(done.stdout.split())


PROGRAM = """
import json, os, sys
from pathlib import Path
from course_lib.ranks import remote
from course_lib.command.assess.sandbox import slot_holder
from course_lib.command.assess.sandbox.host_sandboxes import HostSandboxes
from course_lib.command.assess.contract import Limits

script, then = Path(sys.argv[1]), sys.argv[2]  # what to do once both ranks have said something
hosts, limits = remote.parse("a:1,b:1"), Limits(memory=0.25, processes=10, disk=16, output=1)
files, env = {script.parent / "images": Path("/data/images")}, {"COURSE_PROBE": "", "EXTRA": "1"}
with slot_holder.hold(hosts) as held, HostSandboxes(script, limits, hosts, held, files, env, 100) as box:
    print(box._private, flush=True)
    said = []
    with box.start(2, patience=60) as run:
        for event in run:
            if event.kind == "output":
                said.append([event.rank, event.data["text"]])
                if then == "die" and len(said) == 2:
                    os.kill(os.getpid(), 9)
                if then == "stop" and len(said) == 2:
                    run.stop("Enough.")
    came = {str(path.relative_to(box.folder)): path.read_text() for path in box.folder.rglob("*")
            if path.is_file() and path.stat().st_size}
    print(json.dumps([said, run.wait().code, box.ended_by, came, {name: one.taken for name, one in held.items()}]))
"""
SAVE = """
import json, os, pathlib, signal, socket, sys, time
rank = os.environ["HOROVOD_RANK"]
save = lambda: pathlib.Path(os.environ["COURSE_WEIGHTS"]).write_text("of rank " + rank)
"""


@dataclass(frozen=True)
class Ran:
    """A script that has run in a sandbox on each host, and what came out."""

    said: list
    code: int
    ended_by: str
    came: dict
    kept: dict


@pytest.fixture(scope="module")
def ran(hosts, work, nothing_runs_on):
    def run(text: str, then: str = "") -> Ran | None:
        (work / "images").write_text("pixels")
        (work / "script.py").write_text(SAVE + text)
        words = [sys.executable, "-c", PROGRAM, str(work / "script.py"), then]
        done = hosts[0].run(["env", "SECRET=1", *words], timeout=120)
        nothing_runs_on(hosts)
        private, *rest = done.stdout.splitlines()
        assert not Path(private).exists()
        assert rest or then == "die", done.stderr
        return Ran(*json.loads(rest[0])) if rest else None

    return run


LOOK = """
def outcome(action, *args):
    try:
        return action(*args)
    except Exception as error:
        return type(error).__name__
address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
print(json.dumps({
    "read": [outcome(open, path) for path in UNSEEN],
    "written": [outcome(open, path, "w") for path in ("/x", "/usr/x", "/script/assessment.py", "/data/images", COURSE)],
    "data": open("/data/images").read(), "uid": os.getuid(), "cores": sorted(os.sched_getaffinity(0)),
    "processes": max(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "environment": sorted({"SECRET", "EXTRA", "SSH_CONNECTION"} & set(os.environ)),
    "memory": outcome(lambda: len(bytearray(2**30))), "cwd": os.getcwd(),
    "network": outcome(lambda: socket.create_connection(address, 5).close()),
}))
save()
for name in ("rank-0.jsonl", "rank-1.jsonl", "timeline.json", "other.json"):
    pathlib.Path("evidence", name).write_text("of rank " + rank)
"""


def test_all_but_the_network_is_kept_from_a_script_on_both_hosts(ran, work):
    unseen = [
        str(path) for path in (work / "images", REFERENCE, ROOT / "tests", "/etc/ssh/identity", "/etc/hosts.deny")
    ]
    names = f"UNSEEN = {unseen!r}\nCOURSE = {str(bubblewrap.PACKAGE / 'x')!r}\n"
    done = ran(names + LOOK)
    assert (done.code, done.ended_by) == (0, ""), done.said
    assert sorted(rank for rank, _ in done.said) == [0, 1]
    for rank, line in done.said:
        seen = json.loads(line)
        assert seen["read"] == ["FileNotFoundError"] * len(unseen)
        assert seen["written"] == ["OSError"] * 5
        assert (seen["data"], seen["cwd"], seen["environment"]) == ("pixels", "/sandbox", ["EXTRA"])
        assert (seen["memory"], seen["network"]) == ("MemoryError", None)
        assert seen["uid"] != 0 and seen["processes"] < 100
        assert seen["cores"] == done.kept["ab"[rank]]
    # Each rank's own records, the timeline and the weights of rank 0.
    assert done.came == {
        "weights.h5": "of rank 0",
        "evidence/rank-0.jsonl": "of rank 0",
        "evidence/rank-1.jsonl": "of rank 1",
        "evidence/timeline.json": "of rank 0",
    }


def test_a_limit_holds_on_the_other_host(ran):
    done = ran("save()\nif rank == '1': os.fork(); os.fork(); keep = bytearray(b'x') * (100 * 2**20)\ntime.sleep(60)")
    assert done.ended_by == "It used more than 0.25 GB of memory."
    assert done.code != 0


def test_what_the_other_host_s_rank_has_saved_comes_out_of_a_run_that_is_ended(ran):
    text = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nif rank == '1': save()\nprint('up')\ntime.sleep(60)"
    done = ran(text, then="stop")
    assert (done.code, done.ended_by) == (launch.STOPPED, "Enough.")
    assert done.came == {"weights.h5": "of rank 1"}


def test_nothing_is_left_on_either_host_of_a_grader_that_is_killed(ran):
    text = "if os.fork() == 0: os.setsid(); time.sleep(600)\nprint('up')\ntime.sleep(60)"
    assert ran(text, then="die") is None


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["-H", "b:1,a:1"], "An assessment is started on the first of its hosts: give the command on b."),
        (["-H", "a:1,c:1"], "The host c cannot be reached by ssh (ssh: Could not resolve hostname c"),
        (["-H", TWO, "-np", "3"], "3 ranks do not fit into the 2 slots of a:1,b:1"),
        (["-H", TWO, "--hostfile", "hosts"], "Choose one of -H and --hostfile."),
        (["--hostfile", "none"], "The hostfile none cannot be read: No such file or directory."),
    ],
)
def test_what_cannot_be_assessed_is_one_sentence(hosts, work, words, sentence):
    done = hosts[0].run([*COURSE, "assess", str(REFERENCE), *words, "--json", "none.json"], cwd=work, timeout=60)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"course: {sentence}"), done.stderr
    assert "Traceback" not in done.stderr
    assert not (work / "none.json").exists()


def test_files_that_the_other_host_does_not_see(hosts, work):
    """Each host has a /run of its own."""
    (script,) = [work / "own.py"]
    script.write_text(conversions.converted(folder=conversions.ASSESSMENT))
    hosts[0].run(["cp", str(script), "/run/own.py"])
    done = hosts[0].run([*COURSE, "run", "/run/own.py", "-H", TWO], cwd=work, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "course: b does not see /run/own.py: it must be in a folder that all hosts share.\n"
    done = hosts[0].run(["env", "TMPDIR=/run", *COURSE, "assess", str(script), "-H", TWO], cwd=work, timeout=60)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("course: b does not see /run/") and last.endswith(
        "set TMPDIR to a folder that all hosts share."
    )
