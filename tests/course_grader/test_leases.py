"""A lab's assessment with the hub's service, which runs in a process of its own.

Of the hub there is only what checks a lab's token: `GET /hub/api/user` with the fields of JupyterHub 6.1.1.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from course_grader.script import grader, leases, slots
from course_grader.script.outcome import Stopped
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

SCOPE = "access:services!service=slots"
TOKENS = {
    "of-ada": {"kind": "user", "name": "ada", "scopes": [SCOPE]},
    "of-ben": {"kind": "user", "name": "ben", "scopes": [SCOPE]},
    "of-cleo": {"kind": "user", "name": "cleo", "scopes": [SCOPE]},
    "without-scope": {"kind": "user", "name": "ada", "scopes": []},
    "of-a-service": {"kind": "service", "name": "ada", "scopes": [SCOPE]},
}


class Hub(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        user = TOKENS.get(self.headers["Authorization"].partition(" ")[2]) if self.path == "/hub/api/user" else None
        self.send_response(200 if user else 403)
        self.end_headers()
        self.wfile.write(json.dumps(user or {"status": 403}).encode())

    def log_message(self, *_):
        pass


class Service:
    """The hub's service; it listens from `start` to `stop`."""

    def __init__(self, folder, hub):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        cores = sorted(os.sched_getaffinity(0))
        settings = folder / "hub.json"
        settings.write_text(json.dumps({"cores": {"labs": cores, "slots": [cores]}, "cpuset": False}))
        self._command = [sys.executable, str(ROOT / "containers" / "hub" / "slots.py"), str(settings)]
        self._command += ["--address", "127.0.0.1", "--port", str(self.port)]
        self._env = {**os.environ, "JUPYTERHUB_API_URL": f"{hub}/hub/api"}
        self._process = None

    def start(self):
        if self._process and self._process.poll() is None:
            return
        self._process = subprocess.Popen(self._command, env=self._env)
        while self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
        raise AssertionError("the service has ended")

    def stop(self):
        if self._process:
            self._process.terminate()
            self._process.wait()

    def request(self, method, token):
        request = urllib.request.Request(self.address, method=method, headers={"Authorization": f"token {token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def hub():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def running(hub, tmp_path_factory):
    service = Service(tmp_path_factory.mktemp("hub"), hub)
    yield service
    service.stop()


@pytest.fixture
def service(running, tmp_path, monkeypatch):
    """The service, whose queue is empty, and this process as Ada's lab, which asks more often than a lab does."""
    running.start()
    monkeypatch.setenv("COURSE_SLOTS", running.address)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "of-ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)  # whose cache knows the installed Horovod
    monkeypatch.setattr(slots, "_SHARED", tmp_path / "slots")
    monkeypatch.setattr(leases, "INTERVAL_S", 0.05)
    yield running
    for user in ("ada", "ben", "cleo"):
        with contextlib.suppress(OSError):  # if the test has stopped it
            running.request("DELETE", f"of-{user}")


def test_who_waits_reads_how_many_are_ahead(service):
    sentences = []

    def on_wait(sentence):
        sentences.append(sentence)
        service.request("DELETE", ["of-cleo", "of-ben"][len(sentences) - 1])

    assert "cores" in service.request("POST", "of-ben")
    assert service.request("POST", "of-cleo") == {"ahead": 0}
    with slots.take(1, on_wait=on_wait) as cores:
        assert cores == sorted(os.sched_getaffinity(0))[:1]
        assert service.request("POST", "of-ben") == {"ahead": 0}
    assert sentences == ["1 learner is ahead of you.", "You are next: an assessment uses the cores."]
    assert "cores" in service.request("POST", "of-ben")
    assert leases._place(2) == "2 learners are ahead of you."


def test_another_lab_gets_the_cores_when_the_first_is_done(service, tmp_path):
    script = "from course_grader.script import slots\nwith slots.take(1):\n    print('mine', flush=True)\n    input()"
    env = {**os.environ, "JUPYTERHUB_API_TOKEN": "of-ben", "XDG_CACHE_HOME": str(tmp_path / "ben")}
    pipe = subprocess.PIPE
    sentences = []
    with subprocess.Popen([sys.executable, "-c", script], env=env, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout.readline() == "mine\n"

        def on_wait(sentence):
            sentences.append(sentence)
            other.stdin.write("\n")
            other.stdin.flush()

        with slots.take(1, on_wait=on_wait):
            assert other.wait(10) == 0
    assert sentences == ["You are next: an assessment uses the cores."]


def test_two_assessments_of_a_lab_do_not_share_a_lease(service):
    waits, both = threading.Event(), threading.Event()

    def second():
        with slots.take(1, on_wait=lambda _: waits.set()):
            both.set()

    with slots.take(1):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(10) and not both.is_set()
    thread.join(10)
    assert both.is_set()


def test_what_a_killed_assessment_held_is_given_back_by_the_next(service):
    killed = service.request("POST", "of-ada")["lease"]
    with slots.take(1):
        assert service.request("POST", "of-ada")["lease"] != killed


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, ValueError])
def test_cores_are_given_back_however_an_assessment_ends(service, interrupt):
    with pytest.raises(interrupt), slots.take(1):
        raise interrupt
    assert "cores" in service.request("POST", "of-ben")


def test_who_stops_waiting_has_no_place_any_more(service, tmp_path):
    stopping = threading.Event()
    script = tmp_path / "assessment.py"
    script.write_text("print('never run')\n")
    service.request("POST", "of-ben")

    def follow(event):
        assert event.data["text"] == "You are next: an assessment uses the cores."
        stopping.set()

    with pytest.raises(Stopped):
        grader.assess(script, profile="short", on_event=follow, stopping=stopping)
    assert service.request("POST", "of-cleo") == {"ahead": 0}


def test_an_assessment_that_loses_its_cores_is_stopped_and_not_judged(service, tmp_path, monkeypatch):
    def evaluator(*_):
        service.stop()
        service.start()
        assert assessment._stopping.wait(30)
        assessment._raise_if_stopped()

    monkeypatch.setattr(grader.calibration, "known", lambda ranks: 1e9)
    monkeypatch.setattr(grader, "Evaluator", evaluator)
    script = tmp_path / "assessment.py"
    script.write_text("print('never run')\n")
    assessment = grader._Assessment(script, None, "short", None, None, threading.Event())
    with pytest.raises(
        CourseError, match=r"taken back .* after 30 minutes or because .*: assess the script again"
    ) as lost:
        assessment.run()
    assert lost.value.code == 2


def test_a_loss_that_is_seen_in_the_end_only_counts_too(service, monkeypatch):
    monkeypatch.setattr(leases, "INTERVAL_S", 3600)
    with pytest.raises(CourseError, match="taken back"), slots.take(1):
        service.request("DELETE", "of-ada")
        service.request("POST", "of-ben")


def test_a_hub_that_is_started_again_is_waited_for(service):
    service.stop()
    sentences = []

    def on_wait(sentence):
        sentences.append(sentence)
        service.start()

    with slots.take(1, on_wait=on_wait) as cores:
        assert len(cores) == 1
    assert sentences == ["The hub does not answer: asking it again."]


def test_a_hub_that_stays_away_is_told(service, monkeypatch):
    service.stop()
    monkeypatch.setattr(leases, "PATIENCE_S", 0.2)
    with pytest.raises(CourseError, match=r"has not answered for .* tell your instructor") as caught, slots.take(1):
        pass
    assert caught.value.code == 2


@pytest.mark.parametrize("token", ["unknown", "without-scope", "of-a-service", ""])
def test_only_labs_of_this_hub_are_served(service, monkeypatch, token):
    with pytest.raises(urllib.error.HTTPError) as refused:
        service.request("DELETE", token)
    assert refused.value.code == 403
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", token)
    with pytest.raises(CourseError, match=r"does not know this lab: .* start it again") as caught, slots.take(1):
        pass
    assert caught.value.code == 2


def test_both_sides_know_the_same_longest_lease():
    text = (ROOT / "containers" / "hub" / "slots.py").read_text(encoding="utf-8")
    assert f"\nLEASE_S = {leases.LEASE_S}\n" in text


def test_gpus_are_a_labs_own(service, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    service.request("POST", "of-ben")
    with slots.take(1, gpus=2) as taken:
        assert taken == [0]
