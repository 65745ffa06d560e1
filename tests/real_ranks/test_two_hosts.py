"""The solution of 2b across two hosts, by the command lines that notebook 2c shows."""

from __future__ import annotations

import contextlib
import runpy
import sys

import pytest

from course_lib.notebook import experiments
from course_lib.ranks import launch, namespaces
from course_lib.system.errors import CourseError

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
EXPERIMENT = runpy.run_path(str(experiments.find()["two_hosts"]))
ONE, TWO, LAUNCHERS = (EXPERIMENT[name] for name in ("ONE", "TWO", "LAUNCHERS"))


@pytest.fixture(scope="module")
def hosts():
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(namespaces.hosts(2, EXPERIMENT["rank_environment"](1279)))
        except CourseError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def train(hosts, tmp_path_factory):
    """What each rank saw, by `command` on host a."""

    def run(command):
        folder = tmp_path_factory.mktemp("hosts")
        EXPERIMENT["write_script"](folder)
        return EXPERIMENT["run"](hosts[0], command, folder)

    return run


@pytest.fixture(scope="module")
def one_host(train):
    ranks = train(LAUNCHERS["horovodrun, Gloo"].format(hosts=ONE, epochs=1))
    assert [(rank["host"], rank["local_rank"], rank["local_size"]) for rank in ranks] == [("a", 0, 2), ("a", 1, 2)]
    return ranks


def check(ranks, one_host):
    assert [(rank["host"], rank["address"]) for rank in ranks] == [("a", "10.0.0.1"), ("b", "10.0.0.2")]
    assert [(rank["local_rank"], rank["local_size"]) for rank in ranks] == [(0, 1), (0, 1)]
    weights = {rank["weights"] for rank in (*ranks, *one_host)}
    assert len(weights) == 1  # bit for bit: between the hosts, and with one host
    assert {rank["accuracy"] for rank in ranks} == {one_host[0]["accuracy"]}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_hosts_train_what_one_does(launcher, train, one_host):
    if "Gloo" not in launcher and "mpi" not in launch.controllers():
        pytest.skip("Horovod was built without mpi here")
    check(train(LAUNCHERS[launcher].format(hosts=TWO, epochs=1)), one_host)


def test_so_does_the_course_s_launcher(train, one_host):
    course = f"{sys.executable} -m course_lib.command.cli"
    check(train(f"{course} run fashion_mnist.py -np 2 -H {TWO} -- --epochs 1"), one_host)


STOPPED = f"""
import sys
from course_lib.ranks import launch
with launch.start("script.py", controller=sys.argv[1], options=launch.Options(hosts="{TWO}")) as run:
    said = [event.data["text"] for _, event in zip("ab", (e for e in run if e.kind == "output"))]
print(*sorted(said), run.wait().code)
"""


LATE = f"""
from course_lib.ranks import launch
def function():
    import socket, time
    print(socket.gethostname())
    time.sleep(600)
launch.call(function, 2, hosts="{TWO}", controller="gloo", timeout=6)
"""


def test_a_stopped_run_ends_on_the_other_host_too(hosts, controller, tmp_path, nothing_runs_on):
    (tmp_path / "script.py").write_text("import socket, time\nprint(socket.gethostname())\ntime.sleep(600)")
    done = hosts[0].run([sys.executable, "-c", STOPPED, controller], cwd=tmp_path, timeout=60)
    assert done.stdout == f"a b {launch.STOPPED}\n", done.stderr
    nothing_runs_on(hosts)


def test_a_function_at_its_time_limit_ends_on_the_other_host_too(hosts, nothing_runs_on):
    done = hosts[0].run([sys.executable, "-c", LATE], timeout=60)
    assert sorted(done.stdout.splitlines()) == ["[0] a", "[1] b"], done.stderr
    assert "Stopped at the time limit of 6 s." in done.stderr
    nothing_runs_on(hosts)


DAEMON = """
import os
print("of", os.environ["HOROVOD_SIZE"], flush=True)
if os.environ["HOROVOD_RANK"] == "1" and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        os.execvp("sleep", ["sleep", "600"])
    os._exit(0)
"""


def test_a_daemon_does_not_outlive_the_run_on_the_other_host(hosts, tmp_path, nothing_runs_on):
    (tmp_path / "script.py").write_text(DAEMON)
    course = [sys.executable, "-m", "course_lib.command.cli", "run", "script.py", "-H", "a:1,b:2", "-np", "2", "--gloo"]
    done = hosts[0].run(course, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0 │ of 2", "rank 1 │ of 2"]  # though there are three slots
    nothing_runs_on(hosts)
