"""containers/launch with a real engine: Podman, as root, in namespaces of its own.

The image is a stand-in that has all that the launcher relies on: user, port, token, workspace. The course's own images
are built in test_image.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
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
IMAGES = """\
FROM localhost/debian AS learner
RUN useradd --create-home --uid 1000 learner && mkdir /workspace && chown learner /workspace
COPY server.pl /
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
        """Containers and volumes that are there."""
        containers = self.run("podman", "ps", "--all", "--format", "{{.Names}}")
        return (containers.stdout + self.run("podman", "volume", "ls", "--quiet").stdout).split()


@pytest.fixture(scope="module")
def host(debian, new_engine) -> Host:
    host = Host(new_engine(network=True))
    (host.folder / "server.pl").write_text(SERVER)
    (host.folder / "Dockerfile").write_text(IMAGES)
    if not DEBIAN.exists():
        debian.unpack(host.folder / "root")  # keeps the archive too
    commands = [["import", str(DEBIAN), "debian"]]
    for target in ("learner", "refusing", "silent"):
        commands.append(["build", "--target", target, "--tag", f"one-model-many-gpus:cpu-{target}", str(host.folder)])
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
    found = re.findall(
        r"^(\S+) +running +none +http://127\.0\.0\.1:(\d+)/lab/tree/Welcome\.md\?token=(\w+)$", table, re.M
    )
    return [(name, int(port), token) for name, port, token in found]


def test_a_class_from_start_to_end(clean):
    started = clean.launch("lab", "--learners", "2")
    assert started.returncode == 0, started.stderr
    labs = links(started.stdout)
    assert [name for name, *_ in labs] == ["course-01", "course-02"]
    assert len({port for _, port, _ in labs}) == len({token for *_, token in labs}) == 2
    assert all(clean.version(port) == token for _, port, token in labs)
    assert links(clean.launch("list").stdout) == labs

    again = clean.launch("lab", "--volume", "course-02")
    assert again.returncode == 2 and "runs on the volume course-02 already" in again.stderr

    stopped = clean.launch("stop", "--remove-volumes", "--all")
    assert stopped.returncode == 0, stopped.stderr
    assert clean.launch("list").stdout == "There are no labs.\n"


def test_what_a_learner_can_and_cannot_do_inside(clean):
    started = clean.launch("lab", "--volume", "ada", "--learners", "1", "--shm-size", "256m")
    assert started.returncode == 0, started.stderr
    try:
        look = (
            "id -u; touch /workspace/own && echo own; touch /etc/passwd 2>&1",
            "grep -E 'CapBnd|NoNewPrivs' /proc/1/status",
            "df --block-size=1M --output=size /dev/shm | tail -1; ulimit -Hs; ulimit -Hn; cat /proc/1/cmdline",
        )
        said = clean.run("podman", "exec", "ada-01", "sh", "-c", "\n".join(look))
        assert said.returncode == 0, said.stderr
        user, own, other, capabilities, privileges, shared, stack, files, command = said.stdout.splitlines()
        assert (user, own, shared.strip(), stack) == ("1000", "own", "256", "65536")
        assert "Permission denied" in other
        assert capabilities.split()[1].strip("0") == "" and privileges.split()[1] == "1"
        assert int(files) <= 65536
        assert "token" not in command
        bounds = json.loads(clean.run("podman", "inspect", "ada-01").stdout)[0]["HostConfig"]
        assert bounds["Memory"] > 0 and bounds["PidsLimit"] == 16384
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
    done = clean.launch("lab", "--learners", "2", "--image", "one-model-many-gpus:cpu-refusing")
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
