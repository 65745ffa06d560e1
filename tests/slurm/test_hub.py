"""A JupyterHub whose labs are jobs of a real Slurm: a lab starts on a node, belongs to its user, and ends."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from course_lib.system.paths import ROOT
from tests import hub_environment
from tests.open_folders import let_others_in

pytestmark = [pytest.mark.slow, pytest.mark.notebook]
USERS = {"ada": 2001, "ben": 2002, "grace": 2003}
TEACHERS = "users"  # a group that every machine has
CONFIG = """
import sys
sys.path.insert(0, {hub!r})
import slurm

c = get_config()
slurm.configure(c, slurm.Cluster(state={state!r}, course={course!r}, instructors={teachers!r}))
c.LabSpawner.req_prologue = {prologue!r}
c.LabSpawner.req_memory = "1G"
c.JupyterHub.hub_connect_ip = "a"
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.ConfigurableHTTPProxy.command = [{node!r}, {proxy!r}]
c.JupyterHub.services = [{{"name": "test", "api_token": "test-token-of-the-test"}}]
scopes = ["admin:users", "admin:servers", "access:servers"]
c.JupyterHub.load_roles = [{{"name": "test", "services": ["test"], "scopes": scopes}}]
"""
NOTEBOOK = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
ENTER = """
import sys
sys.path.insert(0, sys.argv[1])
import slurm
cluster = slurm.Cluster(state="/class", instructors="users", image="learner.sif", instructor_image="all.sif", data="/d")
print(slurm.enter("ada", sys.argv[2], cluster, gpus=True))
settings = {"state": "/class", "gpus_each": 1, "data": "/d"}
print(*slurm.lab_settings.mounts("ada", sys.argv[2], slurm.Path("/class"), settings))
"""
ASK = """
import json, sys, urllib.error, urllib.request
method, url = sys.argv[1:]
request = urllib.request.Request(url, method=method, headers={"Authorization": "token test-token-of-the-test"})
try:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        print(json.dumps([answer.status, json.loads(answer.read() or b"null")]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, None]))
except OSError as error:
    print(json.dumps([0, str(error)]))
"""


class Hub:
    """The hub, as its API shows it on the first node, and what users may do there."""

    def __init__(self, cluster, state: Path, log: Path) -> None:
        self.cluster, self.state, self.log = cluster, state, log

    def ask(self, method: str, path: str):
        done = self.cluster.run([sys.executable, "-c", ASK, method, f"http://127.0.0.1:8000{path}"])
        return json.loads(done.stdout)

    def as_user(self, name: str, *command: str) -> int:
        return self.cluster.run(["runuser", "-u", name, "--", *command]).returncode

    def wait(self, condition, seconds=120):
        deadline = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < deadline, self.log.read_text()[-6000:]
            time.sleep(0.5)
        return result

    def start(self, name: str) -> dict:
        """Start a user's lab; return what it says of itself."""
        assert self.ask("POST", f"/hub/api/users/{name}")[0] in (201, 409)
        assert self.ask("POST", f"/hub/api/users/{name}/server")[0] in (201, 202), self.log.read_text()[-6000:]

        def status():
            code, answer = self.ask("GET", f"/user/{name}/api/status")
            return answer if code == 200 else None

        return self.wait(status)


@pytest.fixture(scope="module")
def hub(cluster):
    environment = hub_environment.python().parent.parent
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="course-slurm-hub-")))
        cluster.folder.chmod(0o755)
        folder.chmod(0o755)
        state, packages = folder / "class", folder / "packages"
        state.mkdir()
        # What images get for their labs.
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
        requirements = ROOT / "containers" / "image" / "requirements.txt"
        command = [*install, "--requirement", str(requirements)]
        done = subprocess.run(command, capture_output=True, text=True, env=hub_environment.environment())
        if done.returncode:
            pytest.skip(f"The packages of labs cannot be had here: {done.stderr.strip().splitlines()[-1:]}")
        users = "".join(
            f"{name}:x:{number}:{100 if name == 'grace' else number}::{folder}:/bin/sh\n"
            for name, number in USERS.items()
        )
        for node in cluster.nodes:
            let_others_in(node, {Path(sys.base_prefix), Path(sys.prefix), ROOT, environment})
        assert cluster.run(["sh", "-c", 'printf "%s" "$1" >> /etc/passwd', "sh", users]).returncode == 0
        config = folder / "jupyterhub_config.py"
        config.write_text(
            CONFIG.format(
                hub=str(ROOT / "containers" / "hub"),
                state=str(state),
                course=str(ROOT),
                teachers=TEACHERS,
                prologue=f"export PYTHONPATH={packages}",
                node=str(environment / "bin" / "node"),
                proxy=str(environment / "node_modules/configurable-http-proxy/bin/configurable-http-proxy"),
            )
        )
        log = folder / "hub.log"
        output = stack.enter_context(log.open("w"))
        command = [str(environment / "bin" / "python"), "-m", "jupyterhub", "--config", str(config)]
        process = cluster.nodes[0].popen(
            ["sh", "-c", 'echo $$ > pid; exec "$@"', "sh", *command], cwd=folder, stdout=output, stderr=output
        )
        made = Hub(cluster, state, log)
        try:
            made.wait(lambda: made.ask("GET", "/hub/api/")[0] == 200)
            yield made
        finally:
            for job in cluster.jobs():
                cluster.run(["scancel", job.split()[1]])
            cluster.run(["kill", "-TERM", (folder / "pid").read_text().strip()])
            process.wait(timeout=60)


def test_a_lab_is_a_job_of_its_user_and_ends(hub, cluster):
    (hub.state / "exchange/outbound/lab9").mkdir(parents=True)
    (hub.state / "exchange/outbound/lab9/notes.ipynb").write_text(NOTEBOOK)
    assert hub.start("ada")["kernels"] == 0
    users = cluster.run(["squeue", "--noheader", "--format=%u %j %T"]).stdout.split("\n")
    assert "ada course-lab RUNNING" in users
    code, listing = hub.ask("GET", "/user/ada/api/contents/")
    assert code == 200 and {"Welcome.md", "feedback"} <= {entry["name"] for entry in listing["content"]}
    code, assignments = hub.ask("GET", "/user/ada/assignments?course_id=course")
    assert (code, assignments["success"]) == (200, True)
    assert [(one["assignment_id"], one["status"]) for one in assignments["value"]] == [("lab9", "released")]
    (hub.state / "exchange/feedback/ada/lab9.html").write_text("well done")
    code, page = hub.ask("GET", "/user/ada/api/contents/feedback/lab9.html")
    assert (code, page["content"]) == (200, "well done")
    assert hub.ask("DELETE", "/hub/api/users/ada/server")[0] in (202, 204)
    hub.wait(lambda: cluster.jobs() == [])
    assert hub.ask("GET", "/user/ada/api/status")[0] != 200
    assert hub.ask("GET", "/hub/api/users/ada")[1]["server"] is None


def test_who_reaches_what(hub):
    for name in ("ada", "ben", "grace"):
        hub.start(name)
        assert hub.ask("DELETE", f"/hub/api/users/{name}/server")[0] in (202, 204)
    inbound, feedback = (hub.state / "exchange" / part / "ada" for part in ("inbound", "feedback"))
    workspace = hub.state / "workspaces" / "ada"
    assert hub.as_user("ada", "touch", str(inbound / "mine")) == 0
    assert hub.as_user("grace", "cat", str(inbound / "mine")) == 0
    assert hub.as_user("grace", "touch", str(feedback / "page")) == 0
    assert hub.as_user("ada", "cat", str(feedback / "page")) == 0
    for path in (inbound, feedback, workspace):
        assert hub.as_user("ben", "ls", str(path)) != 0
    for user, path in (("ada", feedback), ("grace", inbound), ("ben", inbound), ("ada", inbound.parent)):
        assert hub.as_user(user, "touch", str(path / "other")) != 0
    assert not (inbound.parent / "grace").exists()


@pytest.mark.parametrize("role, image", [("learner", "learner.sif"), ("instructor", "all.sif")])
def test_with_apptainer_a_lab_has_the_same_mounts(role, image):
    command = [str(hub_environment.python()), "-c", ENTER, str(hub_environment.HUB), role]
    line, mounts = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    words = shlex.split(line)
    assert words[:3] == ["exec", "apptainer", "run"] and "--nv" in words and words[-1] == image
    binds = [word for option, word in zip(words, words[1:]) if option == "--bind"]
    assert binds == [mount for mount in mounts.split() if ":/etc/" not in mount]
