"""A class on a host of its own, for tests: Podman, the hub in its real image, and users who log in.

The labs' image is the learner's without TensorFlow and Horovod: what the hub meets is the same (`course lab`, the
single-user server, nbgrader's Assignment List).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import shlex
import shutil
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import requests

from course_lib.command.classroom import handout
from course_lib.system import paths

if TYPE_CHECKING:
    from conftest import Engine

CONTAINERS = paths.ROOT / "containers"
PATIENCE = 600  # seconds for a build, or for what a busy machine takes its time for
NETWORK_NAMESPACE = 0x40000000
LAB = "lab2_horovod"
DOMAIN = "hub.test"
LEARNERS = ("ada", "ben", "carl", "dan", "erin", "finn", "hana", "ida")
LAB_IMAGE = """\
FROM localhost/empty-debian
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-venv tini && apt-get clean
RUN python3 -m venv /course/.venv
COPY environment /tmp/environment
RUN cd /tmp/environment && /course/.venv/bin/pip install --quiet --no-cache-dir -c requirements.lock \
    cloudpickle h5py jupyterlab nbgrader numpy psutil rich scipy typer \
    && /course/.venv/bin/pip install --quiet --no-cache-dir --no-deps -r requirements.txt
RUN useradd --uid 1000 --create-home learner && install -d -o learner -g learner /workspace /exchange
COPY image/course-start image/course-health course-command /usr/local/bin/
COPY course /course
ENV PATH=/course/.venv/bin:$PATH LANG=C.UTF-8 XDG_CACHE_HOME=/workspace/.cache PYTHONPATH=/course:/course/assessment
RUN ln -s /usr/local/bin/course-command /course/.venv/bin/course
USER learner
WORKDIR /workspace
VOLUME /workspace
ENTRYPOINT ["tini", "--", "course-start"]
"""
COURSE = "#!/course/.venv/bin/python\nfrom course_lib.command.cli import main\n\nmain()\n"


def hub_module(name: str):
    spec = importlib.util.spec_from_file_location(name, CONTAINERS / "hub" / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@contextlib.contextmanager
def network_of(process: int) -> Iterator[None]:
    """This thread in the network of another process: sockets that it opens are there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as own, open(f"/proc/{process}/ns/net") as other:
        assert libc.setns(other.fileno(), NETWORK_NAMESPACE) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert libc.setns(own.fileno(), NETWORK_NAMESPACE) == 0


def until(condition, what: str):
    """Wait for `condition`; return what it returns."""
    deadline = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return result


class Hub:
    """A class on a host of its own: state folder, engine, hub."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.state = engine, engine.folder / "state"
        self.state.mkdir()
        passwords = hub_module("passwords")
        self.passwords = {name: passwords.new_password() for name in (*LEARNERS, "grace")}
        self.members = {
            name: {"role": "instructor" if name == "grace" else "learner", "scrypt": passwords.hash_password(password)}
            for name, password in self.passwords.items()
        }
        self.write_class()
        (self.state / "calibration").mkdir()
        (self.state / "calibration" / "calibration.json").write_text('{"key": "operator"}')
        self.service = None
        self.podman("network", "create", "course-hub")
        (network,) = json.loads(self.podman("network", "inspect", "course-hub"))
        self.address = network["subnets"][0]["gateway"].rpartition(".")[0] + ".100"
        self.url = f"http://{self.address}:8000"
        cores = sorted(os.sched_getaffinity(0))
        settings = {
            "engine": "podman",
            "state": str(self.state),
            "hostname": socket.gethostname(),
            "timezone": "Europe/Berlin",
            "images": {"learner": "localhost/course-learner", "instructor": "localhost/course-learner"},
            "hours": 1,
            "memory": 1024,
            "shared_memory": "64m",
            "processes": 1024,
            "ulimits": {"nofile": 4096, "nproc": 8192},
            "sandbox": ["seccomp=unconfined", "unmask=ALL"],
            "cores": {"labs": cores, "slots": [cores]},
            "cpuset": True,
            "gpus": [],
            "gpus_each": 0,
            "network": "course-hub",
            "connect": self.address,
            "data": "",
            "domain": "",
            "login": "",
        }
        self.settings = settings
        self.socket = engine.folder / "podman.sock"

    def open(self) -> None:
        """Start the engine's API, and the hub."""
        self.service = self.engine.start("podman", "system", "service", "--time=0", f"unix://{self.socket}")
        until(self.socket.exists, "Podman's API does not start")
        self.start()

    def write_class(self) -> None:
        (self.state / "class.json").write_text(json.dumps(self.members))

    def start(self) -> None:
        """Start the hub; wait until it answers."""
        (self.state / "hub.json").write_text(json.dumps(self.settings))
        mounts = ["--volume", f"{self.state}:/srv/state", "--volume", f"{self.socket}:/var/run/docker.sock"]
        name = ["--name", "course-hub", "--network", "course-hub", "--ip", self.address]
        limits = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=8192:8192"]
        self.podman("run", "--detach", *limits, *name, *mounts, "localhost/course-hub")
        until(self.answers, "the hub does not answer")

    def answers(self) -> bool:
        try:
            return self.get("/hub/health").ok
        except requests.ConnectionError:
            running = self.podman("inspect", "--format", "{{.State.Running}}", "course-hub").strip()
            assert running == "true", self.log()
            return False

    def end(self) -> None:
        """As when its host fails: nothing of it has time for anything."""
        self.podman("kill", "course-hub")
        self.podman("rm", "--force", "course-hub")

    def log(self) -> str:
        done = self.engine.run("podman", "logs", "course-hub")
        return done.stdout + done.stderr

    def podman(self, *arguments: str) -> str:
        done = self.engine.run("podman", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def inside(self, name: str, script: str) -> str:
        """Run a shell script in a lab as its user; return all that it writes."""
        done = self.engine.run("podman", "exec", f"course-lab-{name}", "sh", "-c", script)
        return done.stdout + done.stderr

    def collect(self, *arguments: str) -> str:
        """Run `course collect` in the instructor's lab; return all that it writes."""
        return self.inside("grace", shlex.join(["course", "collect", *arguments]))

    def get(self, path: str, **options) -> requests.Response:
        with network_of(self.engine.pid):
            return requests.get(self.url + path, timeout=60, **options)

    def close(self) -> None:
        if self.service:
            self.service.terminate()
            self.service.communicate()


class User:
    """Somebody at a browser, and with a token of their own."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub, self.name = hub, name
        self.session = requests.Session()
        self.session.trust_env = False
        self.token = ""

    def login(self, password: str) -> requests.Response:
        """The page after the form."""
        self._ask("GET", "/hub/login")
        return self._form("/hub/login?next=/hub/home", username=self.name, password=password)

    def enter(self) -> User:
        """Log in, ask for a token, start the lab and wait for it."""
        assert self.login(self.hub.passwords[self.name]).ok
        answer = self._ask("POST", f"/hub/api/users/{self.name}/tokens", headers=self._xsrf("/hub/"), json={})
        assert answer.status_code == 201, answer.text
        self.token = answer.json()["token"]
        return self.start_lab()

    def start_lab(self) -> User:
        """Start the lab, and wait for it."""
        self.ask("POST", f"/hub/api/users/{self.name}/server")
        until(self.lab_answers, f"the lab of {self.name} does not start: {self.hub.log()}")
        return self

    def lab_answers(self) -> bool:
        return self.ask("GET", f"/user/{self.name}/api/status").status_code == 200

    def ask(self, method: str, path: str, **options) -> requests.Response:
        """With the token, without cookies."""
        headers = {"Authorization": f"token {self.token}"}
        with network_of(self.hub.engine.pid):
            return requests.request(method, self.hub.url + path, headers=headers, timeout=PATIENCE, **options)

    def lab(self, method: str, path: str, **options) -> requests.Response:
        """Of one's own lab."""
        return self.ask(method, f"/user/{self.name}{path}", **options)

    def assignments(self) -> dict[tuple[str, str], dict]:
        """What the Assignment List shows: by name and status."""
        answer = self.lab("GET", "/assignments", params={"course_id": "course"}).json()
        assert answer["success"], answer["value"]
        return {(entry["assignment_id"], entry["status"]): entry for entry in answer["value"]}

    def submit(self, lab: str) -> dict:
        return self.lab("POST", "/assignments/submit", json={"course_id": "course", "assignment_id": lab}).json()

    def _form(self, path: str, **fields: str) -> requests.Response:
        return self._ask("POST", path, data={"_xsrf": self._cookie("/hub/"), **fields})

    def _xsrf(self, path: str) -> dict[str, str]:
        return {"X-XSRFToken": self._cookie(path), "Referer": f"{self.hub.url}/hub/home"}

    def _cookie(self, path: str) -> str:
        return next(cookie.value for cookie in self.session.cookies if (cookie.name, cookie.path) == ("_xsrf", path))

    def _ask(self, method: str, path: str, **options) -> requests.Response:
        with network_of(self.hub.engine.pid):
            return self.session.request(method, self.hub.url + path, timeout=PATIENCE, **options)


def build_images(engine: Engine) -> None:
    """Build the images of labs and hub, on the engine's empty Debian."""
    context = engine.folder / "lab"
    handout.hand_out(context / "course")
    shutil.copytree(CONTAINERS / "image", context / "image")
    (context / "environment").mkdir()
    shutil.copy(paths.ROOT / "requirements.lock", context / "environment")
    shutil.copy(CONTAINERS / "image" / "requirements.txt", context / "environment")
    (context / "course-command").write_text(COURSE)
    (context / "course-command").chmod(0o755)
    (context / "Dockerfile").write_text(LAB_IMAGE)
    build = ("build", "--isolation", "chroot", "--format", "docker")
    engine.buildah(*build, "--tag", "localhost/course-learner", str(context), timeout=PATIENCE)
    base = ("--build-arg", "BASE=localhost/empty-debian")
    dockerfile = ("--file", "containers/hub/Dockerfile")
    engine.buildah(*build, *base, *dockerfile, "--tag", "localhost/course-hub", ".", timeout=PATIENCE)
