"""The README's two commands in an empty Debian: whatever is missing is named, and following the advice is enough."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from course_lib.places import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.container,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a Debian root"),
    pytest.mark.skipif(not shutil.which("debootstrap"), reason="debootstrap is not installed"),
    pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed"),
]
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


class Machine:
    """An empty Debian in a folder; every command runs in a process namespace of its own, which ends with it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(root)],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=900,
        )
        shutil.copyfile("/etc/resolv.conf", root / "etc" / "resolv.conf")
        if BUNDLE.exists():  # a site's own authorities count inside, too
            shutil.copyfile(BUNDLE, root / BUNDLE.relative_to("/"))
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
        for name in filter(None, tracked.stdout.split("\0")):
            target = root / "course" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs `arguments` inside, in the course's folder."""
        site = {k: v for k, v in os.environ.items() if k.startswith(("PIP_INDEX", "PIP_EXTRA", "UV_"))}
        inside = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "SSL_CERT_FILE": str(BUNDLE),
            **site,
        }
        return [
            *("bwrap", "--bind", str(self.root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
            *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--cap-add", "ALL"),
            *("--chdir", "/course", "--clearenv"),
            *(word for name, value in inside.items() for word in ("--setenv", name, value)),
            *arguments,
        ]

    def run(self, *arguments: str, timeout: float = 1500) -> subprocess.CompletedProcess:
        """Run a command inside to its end."""
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=timeout)

    def install(self, *packages: str) -> None:
        """Install Debian packages inside."""
        apt = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root"]
        self.run(*apt, "update")
        done = self.run(*apt, "install", "-y", "--no-install-recommends", *packages)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    root = tmp_path_factory.mktemp("debian") / "root"
    yield Machine(root)
    shutil.rmtree(root)


def advice(done: subprocess.CompletedProcess) -> list[str]:
    """The packages that the one sentence tells to install."""
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    found = re.search(r"`sudo apt install ([^`]+)`", done.stderr)
    assert found, done.stderr
    return found.group(1).split()


def test_from_an_empty_machine_to_the_lab_and_the_tests(machine):
    # Without Python; then with Python alone; then with what the two sentences named.
    wanted = advice(machine.run("./course", "lab"))
    assert "python3" in wanted
    machine.install("python3")
    wanted = advice(machine.run("./course", "lab"))
    assert {"python3-venv", "g++"} <= set(wanted)
    assert not (machine.root / "course" / ".venv").exists()
    machine.install(*wanted)

    log = machine.root.parent / "lab.log"
    for start in ("first", "second"):
        with log.open("w") as output:
            lab = subprocess.Popen(
                machine.command("./course", "lab", "--no-browser"), stdout=output, stderr=output, start_new_session=True
            )
        try:
            url = await_url(lab, log)
            assert b"jupyter" in urllib.request.urlopen(url, timeout=60).read().lower(), start
        finally:
            os.killpg(lab.pid, signal.SIGINT)
            try:
                lab.wait(60)
            finally:
                lab.kill()
    assert "Compil" not in log.read_text()  # the second start sets nothing up
    put = {path.name for path in (machine.root / "course" / "workspace" / "lab2_horovod").iterdir()}
    assert {"2b_convert_a_script.ipynb", "fashion_mnist.py"} <= put
    assert not {"2b_convert_a_script.py", "reference"} & put

    report = machine.run("./course", "doctor", "--json")
    assert report.returncode == 0, report.stdout + report.stderr
    found = json.loads(report.stdout)
    assert found["ranks_agree"] is True
    assert found["controllers"] == ["gloo"]
    assert found["problems"] == []

    tests = machine.run("./course", "test", "-q", "-m", "not slow")
    assert tests.returncode == 0, tests.stdout[-5000:]
    assert re.search(r"\d+ passed", tests.stdout)


def await_url(lab: subprocess.Popen, log: Path) -> str:
    deadline = time.monotonic() + 1200
    while time.monotonic() < deadline:
        if found := re.search(r"http://\S+token=\w+", log.read_text()):
            return found.group()
        assert lab.poll() is None, log.read_text()[-3000:]
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])
