"""Other hosts: how they are written, how they are reached, and what is said where that does not work."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.ranks import horovodrun, launch, remote
from course_lib.ranks.remote import Host
from course_lib.system.errors import CourseError


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """Make all hosts but `here` reachable by a shell script, which gets a host's name and a command."""
    path = tmp_path / "shell"
    path.write_text('#!/bin/sh\nhost=$1; shift\nexec "$@"\n')
    path.chmod(0o755)
    monkeypatch.setattr(remote, "here", lambda name: name == "here")
    monkeypatch.setenv(remote.REMOTE_SHELL, f"{path} {{host}}")
    return path


def refused(call, *arguments):
    with pytest.raises(CourseError) as caught:
        call(*arguments)
    assert caught.value.code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestWritten:
    def test_hosts_and_slots(self):
        hosts = remote.parse("a:2, node-1.cluster.org:4,10.0.0.7:1")
        assert hosts == (Host("a", 2), Host("node-1.cluster.org", 4), Host("10.0.0.7", 1))
        assert remote.parse(remote.written(hosts)) == hosts

    @pytest.mark.parametrize(
        "text", ["", "a", "a:", "a:x", "a:2,", "a b:2", "-oProxyCommand=x:2", "-l:2", "a..b:1", "me@a:2", "a:2 b:2"]
    )
    def test_anything_else_is_refused(self, text):
        assert refused(remote.parse, text) == f"Hosts are written host:slots,host:slots, not '{text}'."

    def test_hosts_that_make_no_sense(self):
        assert refused(remote.parse, "a:2,b:1,a:2").startswith("The host a is listed twice")
        assert refused(remote.parse, "a:2,b:0").startswith("The host b has no slots")

    def test_a_hostfile(self, tmp_path):
        path = tmp_path / "hosts"
        path.write_text("# the cluster\na slots=2\n\nb  slots = 4 max_slots=8 # the large one\nc:1\n")
        assert remote.chosen(None, path) == "a:2,b:4,c:1"

    @pytest.mark.parametrize(
        "text, sentence",
        [
            ("a slots=2\nb\n", r"Line 2 of .*hosts must read `host slots=N`, not 'b'"),
            ("a slots=two", r"Line 1 of .*hosts must read"),
            ("a slots=1\na slots=1", "The host a is listed twice"),
            ("# nothing\n", r"The hostfile .*hosts names no host"),
            (b"\xff\xfe", r"The hostfile .*hosts cannot be read: it is not a text file"),
            (None, r"The hostfile .*hosts cannot be read: No such file or directory"),
        ],
    )
    def test_a_hostfile_that_is_none(self, tmp_path, text, sentence):
        path = tmp_path / "hosts"
        if text is not None:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(CourseError, match=sentence):
            remote.read(path)

    def test_one_of_both(self):
        assert refused(remote.chosen, "a:1", Path("hosts")) == "Choose one of -H and --hostfile."
        assert remote.chosen("a:1", None) == "a:1"
        assert remote.chosen(None, None) is None

    def test_hosts_are_filled_one_after_the_other(self):
        hosts = remote.parse("a:2,b:2,c:2")
        assert [remote.written(remote.first(hosts, ranks)) for ranks in (1, 3, 6)] == ["a:1", "a:2,b:1", "a:2,b:2,c:2"]
        assert "7 ranks do not fit into the 6 slots of a:2,b:2,c:2" in refused(remote.first, hosts, 7)

    def test_all_slots_are_used_where_no_number_is_given(self):
        assert launch._placed(None, "a:2,b:3", None)[0] == 5
        assert launch._placed(1, "a:2,b:3", None)[0] == 1


class TestReached:
    def test_this_host_needs_no_shell(self):
        assert remote.here("localhost") and remote.here("127.0.1.1")
        assert not remote.here("192.0.2.1")  # for documentation only

    def test_ssh_never_asks(self, monkeypatch):
        monkeypatch.delenv(remote.REMOTE_SHELL, raising=False)
        words = remote.shell("b")
        assert (words[0], words[-1]) == ("ssh", "b")
        assert "BatchMode=yes" in words

    @pytest.mark.parametrize(
        "command, said", [("echo / a  b", "/ a b\n"), (shlex.quote("cd / && echo $PWD 'a  b'"), "/ a  b\n")]
    )
    def test_another_shell_reads_a_command_as_ssh_does(self, elsewhere, command, said):
        done = subprocess.run(horovodrun.remote_command(command, "b"), shell=True, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == (said, "")

    def test_horovod_knows_this_host_by_its_own_name(self):
        program = """
import socket
socket.gethostbyname = lambda name: "127.0.1.1"  # as in Debian's /etc/hosts
from course_lib.ranks import horovodrun
horovodrun.patch_launcher()
from horovod.runner import gloo_run, launch
from horovod.runner.driver import driver_service
from horovod.runner.util import network
print(network.filter_local_addresses(["me"]), network.resolve_host_address("me"))
print({module.get_remote_command.__module__ for module in (gloo_run, launch, driver_service)})
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stdout == "[] 127.0.0.1\n{'course_lib.ranks.horovodrun'}\n", done.stderr


class TestChecked:
    HOSTS = (Host("here", 1), Host("b", 1), Host("c", 1))

    def test_hosts_that_see_the_same_are_fine(self, elsewhere, tmp_path):
        (tmp_path / "script.py").write_text("")
        elsewhere.write_text('#!/bin/sh\necho "Welcome to $1"; shift\nexec "$@"\n')
        assert remote.check(self.HOSTS, {tmp_path / "script.py": "", tmp_path: ""}, gloo=False) is None

    def test_nobody_is_asked_about_this_host(self, elsewhere):
        elsewhere.unlink()
        assert remote.check(self.HOSTS[:1]) is None

    @pytest.mark.parametrize(
        ("addresses", "fault"),
        [
            (None, "does not resolve"),
            (["203.0.113.7"], "resolves to 203.0.113.7, where this host can't listen"),
            (["203.0.113.7", "127.0.1.1"], ""),
        ],
    )
    def test_gloo_needs_an_address_of_this_hosts_name(self, monkeypatch, addresses, fault):
        def getaddrinfo(name, port, **_):
            if addresses is None:
                raise socket.gaierror(-2, "Name or service not known")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

        monkeypatch.setattr(socket, "gethostname", lambda: "pluto")
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        remote.check((), gloo=False)
        if fault:
            said = f"The name of this host, pluto, {fault}, and Gloo needs it: add the line `127.0.0.1 pluto` to"
            assert refused(remote.check, ()) == f"{said} /etc/hosts."
        else:
            remote.check(())

    def test_what_is_not_there_or_another_is_named(self, elsewhere, tmp_path):
        script = tmp_path / "script.py"
        script.write_text("print(1)")
        move = 'host=$1; shift; [ $host = c ] && {} "$S"; "$@"; {} "$S"\n'
        for there, back, words in (("rm", "touch", "c does not see"), ("truncate -s 2", "true", "c has a different")):
            script.write_text("print(1)")
            elsewhere.write_text(f"#!/bin/sh\nS={script}\n" + move.format(there, back))
            # One after the other, so that what is done to the file for one is not there for the other.
            said = refused(remote.check, (Host("c", 1),), {script: remote.SHARED_FOLDER_ADVICE})
            assert said == f"{words} {script}: it must be in a folder that all hosts share."

    def test_other_versions_are_named(self, elsewhere, monkeypatch):
        mine = remote.describe([])
        monkeypatch.setattr(
            remote, "describe", lambda _: {**mine, "versions": {**mine["versions"], "horovod": "0.29.0", "keras": ""}}
        )
        said = refused(remote.check, self.HOSTS)
        assert said.startswith(f"keras is {mine['versions']['keras']} on b, but missing on this host")

    @pytest.mark.parametrize(("address", "called"), [("127.0.1.1", "127.0.1.1"), ("", "no address")])
    def test_gloo_needs_hosts_that_know_their_address(self, elsewhere, monkeypatch, tmp_path, address, called):
        """Horovod opens some of its connections to what a host's own name stands for."""
        own = remote.describe([])

        def answers(here: str, there: str) -> None:
            monkeypatch.setattr(remote, "describe", lambda _: {**own, "own": {"name": "me", "address": here}})
            (tmp_path / "answer").write_text(json.dumps({**own, "own": {"name": "b", "address": there}}))
            elsewhere.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")

        answers("10.0.0.1", "10.0.0.2")
        remote.check(self.HOSTS)
        answers("10.0.0.1", address)
        assert refused(remote.check, self.HOSTS).startswith(f"b resolves its own name to {called}, where other hosts")
        remote.check(self.HOSTS, gloo=False)
        answers(address, "10.0.0.2")
        assert refused(remote.check, self.HOSTS).startswith(f"me resolves its own name to {called}")
        remote.check(self.HOSTS[1:])  # no rank is here

    @pytest.mark.parametrize(
        "body, sentence",
        [
            ('echo "sh: 1: $PY: not found" >&2; exit 127', "b does not have the course"),
            ("echo \"$PY: can't open file '/x/remote.py'\" >&2; exit 2", "b does not have the course"),
            (
                "echo 'srun: error: Invalid node name' >&2; exit 1",
                "cannot be reached (srun: error: Invalid node name).",
            ),
            ("echo '[1]'", "cannot be reached (exit code 0)"),
            ("echo '{'", "cannot be reached (exit code 0)"),
        ],
    )
    def test_a_host_that_does_not_answer(self, elsewhere, body, sentence):
        elsewhere.write_text(f"#!/bin/sh\nPY={sys.executable}\n{body}\n")
        assert sentence in refused(remote.check, self.HOSTS)

    def test_ssh_that_fails_is_named_with_its_reason(self, elsewhere, monkeypatch, tmp_path):
        monkeypatch.delenv(remote.REMOTE_SHELL)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        elsewhere.rename(tmp_path / "ssh")
        (tmp_path / "ssh").write_text("#!/bin/sh\necho 'me@b: Permission denied (publickey).' >&2\nexit 255\n")
        assert refused(remote.check, self.HOSTS) == (
            "The host b cannot be reached by ssh (me@b: Permission denied (publickey)): "
            "check its name, and that `ssh b` works without a password."
        )
        (tmp_path / "ssh").unlink()
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "sudo apt install openssh-client" in refused(remote.check, self.HOSTS)

    def test_a_host_that_hangs_is_not_waited_for_and_not_left(self, elsewhere, monkeypatch, tmp_path):
        monkeypatch.setattr(remote, "ANSWER_TIMEOUT_S", 0.5)
        elsewhere.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec sleep 600\n")
        assert "The host b did not answer within 0.5 s" in refused(remote.check, self.HOSTS)
        for pid in (tmp_path / "pids").read_text().split():
            assert not Path(f"/proc/{pid}").exists()

    def test_a_run_asks_before_anything_starts(self, elsewhere, monkeypatch, tmp_path):
        (tmp_path / "script.py").write_text("")
        monkeypatch.setattr(launch, "Run", None)
        elsewhere.write_text("#!/bin/sh\necho no >&2; exit 1\n")
        assert "The host b cannot be reached (no)" in refused(
            lambda: launch.start(tmp_path / "script.py", options=launch.Options(hosts="here:1,b:1"))
        )
        assert "The host b cannot be reached (no)" in refused(lambda: launch.call(print, hosts="here:1,b:1"))


RENAMED = ["unshare", "--user", "--map-root-user", "--uts", "sh", "-c", 'hostname pluto-of-nowhere && exec "$@"', "sh"]


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*RENAMED, "true"], capture_output=True).returncode != 0,
    reason="no user namespace here, in which this host has another name",
)
def test_a_run_on_a_host_whose_name_does_not_resolve_is_a_sentence(tmp_path):
    """Gloo would end its ranks by SIGSEGV."""
    if "gloo" not in launch.controllers():
        pytest.skip("Horovod was built without Gloo here")
    script = tmp_path / "script.py"
    script.write_text("import horovod.tensorflow as hvd\nhvd.init()\n")
    command = [*RENAMED, sys.executable, "-m", "course_lib.command.cli", "run", script, "-np", "2", "--gloo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "course: The name of this host, pluto-of-nowhere, does not resolve, and Gloo needs it"
    )
