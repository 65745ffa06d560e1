"""The README's two commands on a fresh machine: an empty Debian root, in namespaces of its own.

The network is the host's, because the set-up downloads; so are its certificates and its settings of pip and uv.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from course_lib.system import paths

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.long]

PATIENCE = 2400  # seconds for the set-up on a busy machine


class Machine:
    """A Debian root; what runs in it has processes of its own and ends when its first process ends."""

    def __init__(self, root: Path, settings: dict[str, str]) -> None:
        self.root = root
        self.settings = settings

    def start(self, *command: str, **options: object) -> subprocess.Popen:
        """Start a command in the project's folder."""
        namespaces = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--cap-add", "ALL"]
        folders = ["--bind", str(self.root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", **self.settings}
        return subprocess.Popen(
            ["bwrap", *namespaces, *folders, "--chdir", "/course", *command],
            env=env,
            stdin=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run where it is ignored
            **options,
        )

    def run(self, *command: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess:
        """Run a command to its end."""
        process = self.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture(scope="module")
def bare(debian) -> Iterator[Machine]:
    """A machine with the project and nothing that it needs."""
    if not shutil.which("bwrap"):
        pytest.skip("bwrap is not installed")
    root = Path(tempfile.mkdtemp(prefix="course-fresh-machine-"))
    root.chmod(0o755)
    try:
        debian.unpack(root)
        debian.configure(root)
        debian.copy_project(root / "course")
        yield Machine(root, debian.settings)
    finally:
        assert str(root) not in Path("/proc/self/mounts").read_text()
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def machine(bare: Machine) -> Machine:
    """The machine with what the README asks for."""
    packages = re.search(r"^ +sudo apt install (.+)$", (paths.ROOT / "README.md").read_text(), re.MULTILINE).group(1)
    install(bare, *packages.split())
    return bare


def install(machine: Machine, *packages: str) -> None:
    """Install Debian packages, without what they recommend."""
    apt = "apt-get update -qq && apt-get install -qq -y --no-install-recommends"
    done = machine.run("sh", "-c", f"{apt} {' '.join(packages)}")
    assert done.returncode == 0, done.stderr


def advice(done: subprocess.CompletedProcess) -> list[str]:
    """The packages that the one sentence names."""
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return re.search(r"`sudo apt install ([^`]+)`", done.stderr).group(1).split()


def test_what_a_machine_lacks_is_one_sentence_with_a_command_that_works(bare):
    assert advice(bare.run("./course", "lab")) == ["python3", "python3-venv", "g++"]
    install(bare, "python3")
    assert advice(bare.run("./course", "lab")) == ["python3.11-venv", "g++"]
    install(bare, "python3.11-venv")
    assert advice(bare.run("./course", "lab")) == ["g++"]
    assert not (bare.root / "course" / ".venv").exists()


def test_the_first_command_opens_the_lab_and_leaves_nothing(machine):
    said = open_and_stop_the_lab(machine)
    assert "[3/4] Horovod 0.28.1 with Gloo\n" in said
    said = open_and_stop_the_lab(machine)
    assert "/4]" not in said, "the second start sets nothing up"
    put = {path.name for path in (machine.root / "course" / "workspace" / "lab2_horovod").iterdir()}
    assert {"2b_convert_a_script.ipynb", "fashion_mnist.py"} <= put
    assert not {"2b_convert_a_script.py", "reference"} & put


def open_and_stop_the_lab(machine: Machine) -> str:
    """Start the lab, stop it with Ctrl-C's signal once it answers, see that all of it is gone; return what it said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    log = machine.root / "lab.log"
    with log.open("w") as out:
        process = machine.start("./course", "lab", "--no-browser", "--port", port, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(1)
        inside = [p for p in psutil.Process(process.pid).children(recursive=True) if p.name() != "bwrap"]
        inside[0].send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert [p for p in inside if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    assert not answers(port)
    assert "Traceback" not in log.read_text()
    return log.read_text()


def test_the_second_command_runs_the_tests(machine):
    done = machine.run(
        "./course",
        "test",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "tests/science/data",
        "tests/command/test_cli.py",
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)


def test_the_doctor_finds_the_machine_healthy(machine):
    done = machine.run("./course", "doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["controllers"] == ["gloo"]
    assert report["ranks_agree"] is True
    assert report["problems"] == []


def answers(port: str) -> bool:
    """Whether JupyterLab answers there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=5) as answer:
            return "version" in json.load(answer)
    except (OSError, urllib.error.URLError, ValueError):
        return False
