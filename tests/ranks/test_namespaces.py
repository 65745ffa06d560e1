"""Pretended hosts: what they see, and that nothing of them is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from course_lib.ranks import namespaces
from course_lib.system.errors import CourseError


def interfaces() -> str:
    return subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def three():
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(namespaces.hosts(3, {"GREETING": "good morning"}))
        except CourseError as error:
            pytest.skip(str(error))


def test_each_has_its_name_its_address_and_its_processes(three):
    assert [(host.name, host.address) for host in three] == [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")]
    for host in three:
        assert host.run(["hostname"]).stdout == f"{host.name}\n"
        assert host.address in host.run(["ip", "-oneline", "address"]).stdout
        assert 2 <= int(host.run(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"]).stdout) <= 5


def test_ssh_goes_from_each_to_each_without_a_word(three):
    done = three[0].run(["ssh", "b", "ssh c ssh a ssh b hostname"], timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b\n", "")


def test_who_logs_in_finds_this_python_and_the_variables(three):
    ask = "python -c 'import sys, os; print(sys.executable, os.environ[\"GREETING\"])'"
    there = three[0].run(["ssh", "c", ask], timeout=30).stdout
    here = three[2].run(["sh", "-c", ask]).stdout
    assert there == here == f"{sys.executable} good morning\n"


def test_the_folder_and_the_exit_code_are_the_command_s(three, tmp_path):
    done = three[1].run(["sh", "-c", "pwd; exit 7"], cwd=tmp_path)
    assert (done.stdout.strip(), done.returncode) == (str(tmp_path), 7)


def test_a_limit_comes_and_goes(three):
    def queue():
        return three[0].run(["tc", "qdisc", "show", "dev", "eth0"]).stdout

    three[0].limit("1gbit")
    three[0].limit("100mbit")
    assert "tbf" in queue()
    assert "rate 100Mbit" in queue()
    three[0].limit(None)
    assert "tbf" not in queue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_whatever_ends_it(three, number):
    mark = uuid.uuid4().hex
    script = f"""
import os, time
from course_lib.ranks.namespaces import hosts
with hosts(2) as pair:
    for host in pair:
        host.popen(["ssh", "-n", "ab"[host.name == "a"], "exec sh -c 'sleep 600; : {mark}'"])
    print(*[os.readlink(f"/proc/{{host.pid}}/ns/net") for host in pair], os.path.dirname(pair[0]._env["HOME"]))
    print("up", flush=True)
    time.sleep(600)
"""
    before = interfaces()
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, stderr=subprocess.PIPE
    )
    *networks, folder = process.stdout.readline().split()
    assert process.stdout.readline() == "up\n"
    assert marked(mark) and members(networks)
    process.send_signal(number)
    process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while left := [*marked(mark), *members(networks), *filter(os.path.exists, [folder])]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert interfaces() == before


def marked(text: str) -> list[psutil.Process]:
    processes = psutil.process_iter(["cmdline"])
    return [p for p in processes if text in " ".join(p.info["cmdline"] or ()) and p.pid != os.getpid()]


def members(networks: list[str]) -> list[int]:
    """The processes in these network namespaces."""
    inside = []
    for process in psutil.pids():
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{process}/ns/net") in networks:
                inside.append(process)
    return inside


@pytest.mark.parametrize("tool", ["ip", "sshd"])
def test_a_missing_tool_is_named_by_its_package(monkeypatch, tool):
    path = namespaces._path
    monkeypatch.setattr(namespaces, "_path", lambda name: "" if name == tool else path(name))
    with pytest.raises(CourseError, match=f"packages iproute2 and openssh-server: .* {namespaces._PACKAGES[tool]}"):
        namespaces.hosts().__enter__()


def test_only_root_may(monkeypatch):
    monkeypatch.setattr(namespaces, "_path", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CourseError, match=r"iproute2 and openssh-server\) need root"):
        namespaces.hosts().__enter__()


def test_a_root_without_the_right_is_one_sentence(three, monkeypatch, tmp_path):
    fake = tmp_path / "unshare"
    fake.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(CourseError, match=r"not even to root \(unshare: .*Operation not permitted\)"):
        namespaces.hosts().__enter__()
