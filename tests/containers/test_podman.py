"""containers/launch with a real engine: Podman, as root, in namespaces of its own.

The images are stand-ins that have all that the launcher relies on: user, port, token, workspace, the calibration's
file. The course's own images are built in test_image.py, the hub's in test_hub.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from course_lib.system import paths

if TYPE_CHECKING:
    from conftest import Engine

pytestmark = [pytest.mark.alone, pytest.mark.container, pytest.mark.slow]

LAUNCH = paths.ROOT / "containers" / "launch"
DEBIAN = paths.cache() / "tests" / "debian-12-minbase.tar"
SERVER = """\
use IO::Socket::INET;
$SIG{TERM} = sub { exit };
my $server = IO::Socket::INET->new(LocalAddr => "0.0.0.0", LocalPort => 8888, Listen => 9, ReuseAddr => 1) or die;
while (my $client = $server->accept) {
    while (<$client>) { last if /^\\r?$/ }
    print $client "HTTP/1.0 200 OK\\r\\n\\r\\n{\\"version\\": \\"$ENV{JUPYTER_TOKEN}\\"}";
}
"""
CALIBRATION = """\
#!/bin/sh
mkdir -p "$XDG_CACHE_HOME/one-model-many-gpus"
echo "{\\"$*\\": \\"$(hostname)\\"}" > "$XDG_CACHE_HOME/one-model-many-gpus/calibration.json"
"""
IMAGES = """\
FROM localhost/debian AS hub
COPY server.pl /
RUN sed -i s/8888/8000/ /server.pl
CMD ["perl", "/server.pl"]
FROM localhost/debian AS learner
RUN useradd --create-home --uid 1000 learner && mkdir /workspace && chown learner /workspace
COPY server.pl /
COPY --chmod=755 calibration /usr/local/bin/python
USER learner
CMD ["perl", "/server.pl"]
FROM learner AS refusing
CMD ["sh", "-c", "echo noise; echo 'Horovod was built without NCCL.' >&2; exit 1"]
FROM learner AS silent
CMD ["perl", "-e", "$SIG{TERM} = sub { exit }; sleep 1000"]
"""


class Host:
    """A host with a network of its own, in whose namespaces Podman and the launcher run."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.folder = engine, engine.folder

    def run(self, *command: str) -> subprocess.CompletedProcess:
        return self.engine.run(*command)

    def launch(self, *arguments: str) -> subprocess.CompletedProcess:
        return self.run(sys.executable, "-I", str(LAUNCH), *arguments, "--engine", "podman")

    def version(self, port: int) -> str:
        """What the lab at this port answers."""
        code = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}/api', timeout=9).read().decode())"
        return json.loads(self.run(sys.executable, "-c", code).stdout)["version"]

    def left(self) -> list[str]:
        """Containers, volumes and networks that are there."""
        containers = self.run("podman", "ps", "--all", "--format", "{{.Names}}").stdout
        networks = self.run("podman", "network", "ls", "--format", "{{.Name}}").stdout.replace("podman\n", "")
        return (containers + networks + self.run("podman", "volume", "ls", "--quiet").stdout).split()


@pytest.fixture(scope="module")
def host(debian, new_engine) -> Host:
    host = Host(new_engine(network=True))
    (host.folder / "server.pl").write_text(SERVER)
    (host.folder / "calibration").write_text(CALIBRATION)
    (host.folder / "Dockerfile").write_text(IMAGES)
    host.run("sh", "-c", "mkdir -p /run/podman && mount -t tmpfs none /run/podman")  # for a socket of its own
    if not DEBIAN.exists():
        debian.unpack(host.folder / "root")  # keeps the archive too
    commands = [["import", str(DEBIAN), "debian"]]
    for target in ("hub", "learner", "refusing", "silent"):
        tag = "one-model-many-gpus:" + (target if target == "hub" else f"cpu-{target}")
        commands.append(["build", "--target", target, "--tag", tag, str(host.folder)])
    for command in commands:
        done = host.run("podman", *command)
        assert done.returncode == 0, done.stderr
    return host


@pytest.fixture
def clean(host) -> Iterator[Host]:
    """The host, on which nothing is left behind by anyone."""
    assert host.left() == []
    yield host
    assert host.left() == []


def links(table: str) -> list[tuple[str, int, str]]:
    """Name, port and token of each lab in a table."""
    rows = re.findall(
        r"^(\S+) +running +none +http://127\.0\.0\.1:(\d+)/lab/tree/Welcome\.md\?token=(\w+)$", table, re.M
    )
    return [(name, int(port), token) for name, port, token in rows]


def test_two_labs_from_start_to_end(clean):
    for name in ("ada", "ben"):
        started = clean.launch("lab", "--volume", name)
        assert started.returncode == 0, started.stderr
    labs = links(clean.launch("list").stdout)
    assert {name for name, *_ in labs} == {"ada", "ben"}
    assert len({port for _, port, _ in labs}) == len({token for *_, token in labs}) == 2
    assert all(clean.version(port) == token for _, port, token in labs)

    again = clean.launch("lab", "--volume", "ben")
    assert again.returncode == 2 and "runs on the volume ben already" in again.stderr

    stopped = clean.launch("stop", "--remove-volumes", "--all")
    assert stopped.returncode == 0, stopped.stderr
    assert clean.launch("list").stdout == "There are no labs.\n"


def test_what_a_learner_can_and_cannot_do_inside(clean):
    started = clean.launch("lab", "--volume", "ada", "--shm-size", "256m")
    assert started.returncode == 0, started.stderr
    try:
        commands = (
            "id -u; touch /workspace/own && echo own; touch /etc/passwd 2>&1",
            "grep -E 'CapBnd|NoNewPrivs' /proc/1/status",
            "df --block-size=1M --output=size /dev/shm | tail -1; ulimit -Hs; ulimit -Hn; cat /proc/1/cmdline",
        )
        done = clean.run("podman", "exec", "ada", "sh", "-c", "\n".join(commands))
        assert done.returncode == 0, done.stderr
        user, own, other, capabilities, privileges, shared, stack, files, command = done.stdout.splitlines()
        assert (user, own, shared.strip(), stack) == ("1000", "own", "256", "65536")
        assert "Permission denied" in other
        assert capabilities.split()[1].strip("0") == "" and privileges.split()[1] == "1"
        assert int(files) <= 65536
        assert "token" not in command
        bounds = json.loads(clean.run("podman", "inspect", "ada").stdout)[0]["HostConfig"]
        assert bounds["PidsLimit"] == 16384
        [(_, port, _)] = links(started.stdout)
        listening = clean.run("sh", "-c", f"iptables -t nat -S | grep -- '--dport {port}'").stdout
        assert "-d 127.0.0.1/32" in listening
    finally:
        clean.launch("stop", "--remove-volumes", "--all")


def test_the_workspace_outlives_its_lab(clean):
    first = clean.launch("lab", "--volume", "ben")
    assert first.returncode == 0, first.stderr
    clean.run("podman", "exec", "ben", "sh", "-c", "echo mine > /workspace/work")
    assert clean.launch("stop", "ben").stdout == "Stopped ben.\n"
    assert clean.left() == ["ben"]
    second = clean.launch("lab", "--volume", "ben")
    assert second.returncode == 0, second.stderr
    assert links(first.stdout)[0][2] != links(second.stdout)[0][2]
    assert clean.run("podman", "exec", "ben", "cat", "/workspace/work").stdout == "mine\n"
    clean.run("podman", "kill", "ben")  # as after a restart of the host
    assert "exited" in clean.launch("list").stdout
    third = clean.launch("lab", "--volume", "ben")
    assert third.returncode == 0, third.stderr
    assert clean.launch("stop", "ben", "--remove-volumes").stdout == "Stopped ben.\nRemoved the volume ben.\n"


def test_a_lab_that_refuses_to_start_says_why_and_is_gone(clean):
    done = clean.launch("lab", "--image", "one-model-many-gpus:cpu-refusing")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.endswith(": Horovod was built without NCCL.\n") and done.stderr.count("\n") == 1


def test_gpus_that_podman_cannot_give_are_refused_before_anything_starts(clean):
    (clean.folder / "nvidia-smi").write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    (clean.folder / "nvidia-smi").chmod(0o755)
    path = f"PATH={clean.folder}:{os.environ['PATH']}"
    command = ["env", path, sys.executable, str(LAUNCH), "lab", "--engine", "podman", "--gpus", "0"]
    done = clean.run(*command, "--image", "one-model-many-gpus:cpu-learner")
    assert done.returncode == 1 and "nvidia-ctk cdi generate" in done.stderr
    (clean.folder / "nvidia-smi").unlink()


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing(clean, signal_):
    image = "one-model-many-gpus:cpu-silent"
    process = clean.engine.start(sys.executable, str(LAUNCH), "lab", "--engine", "podman", "--image", image)
    while clean.run("podman", "ps", "--quiet").stdout == "":
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    process.send_signal(signal_)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err == "launch: interrupted.\n"


def test_a_hub_from_start_to_end(clean, tmp_path):
    state, archive = tmp_path / "state", tmp_path / "backup.tar.gz"
    (tmp_path / "names.txt").write_text("ada\nben\n")
    started = clean.launch("hub", "--class", str(tmp_path / "names.txt"), "--state", str(state), "--port", "8000")
    assert started.returncode == 0, started.stderr
    assert re.search(r"^ada +learner +[a-z0-9-]{19}$", started.stdout, re.M)
    calibration = json.loads((state / "calibration" / "calibration.json").read_text())
    assert calibration == {"-m course_grader.script.calibration --ranks 2": socket.gethostname()}
    settings = json.loads((state / "hub.json").read_text())
    inside = clean.run(
        "podman", "exec", "course-hub", "sh", "-c", "hostname -i; ls /srv/state; test -S /var/run/docker.sock"
    )
    assert inside.returncode == 0, inside.stderr
    address, *files = inside.stdout.split()
    assert settings["connect"] in (address, "course-hub")
    assert {"class.json", "hub.json", "calibration"} <= set(files)
    code = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/podman/podman.sock')"
    assert clean.run(sys.executable, "-c", code).returncode == 0

    lab = ["--name", "course-lab-ada", "--label", "one-model-many-gpus.hub-lab=ada", "--network", "course-hub"]
    limits = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=8192:8192"]
    done = clean.run("podman", "run", "--detach", *lab, *limits, "one-model-many-gpus:cpu-learner")
    assert done.returncode == 0, done.stderr
    listed = clean.launch("hub", "list", "--state", str(state)).stdout
    assert "The hub runs at http://127.0.0.1:8000" in listed and re.search(
        r"^ada +learner +running +\d{4}-", listed, re.M
    )

    (state / "workspaces" / "ada").mkdir(parents=True)
    (state / "workspaces" / "ada" / "work").write_text("mine")
    backed_up = clean.launch("hub", "backup", str(archive), "--state", str(state))
    assert backed_up.returncode == 0, backed_up.stderr
    removed = clean.launch("hub", "remove", "ada", "--delete", "--state", str(state))
    assert removed.returncode == 0, removed.stderr
    assert clean.left() == ["course-hub", "course-hub"]  # the container and the network
    assert not (state / "workspaces" / "ada").exists()

    stopped = clean.launch("hub", "stop", "--state", str(state))
    assert stopped.returncode == 0, stopped.stderr
    assert clean.run(sys.executable, "-c", code).returncode == 1
    restored = clean.launch("hub", "restore", str(archive), "--state", str(tmp_path / "other"))
    assert restored.returncode == 0, restored.stderr
    assert (tmp_path / "other" / "workspaces" / "ada" / "work").read_text() == "mine"


def test_a_hub_that_ends_as_it_starts_leaves_nothing(clean, tmp_path):
    (tmp_path / "names.txt").write_text("ada\n")
    clean.run("podman", "tag", "one-model-many-gpus:hub", "localhost/hub")
    clean.run("podman", "tag", "one-model-many-gpus:cpu-refusing", "one-model-many-gpus:hub")
    try:
        done = clean.launch("hub", "--class", str(tmp_path / "names.txt"), "--state", str(tmp_path / "state"))
    finally:
        clean.run("podman", "tag", "localhost/hub", "one-model-many-gpus:hub")
    assert done.returncode == 1
    assert done.stderr.endswith("ended as it started, so it was removed: Horovod was built without NCCL.\n")
    assert not (tmp_path / "state").exists()
