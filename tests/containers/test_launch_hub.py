"""`launch hub` and its commands against a fake engine; test_hub.py has a real one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from containers.hub.passwords import matches
from containers.launcher import host
from containers.launcher.cli import main
from containers.launcher.client import EngineClient
from containers.launcher.docker import Docker
from containers.launcher.hub import settings as hub_settings
from containers.launcher.hub import start as hub_start
from course_lib.system import paths
from tests.containers.launching import COURSE, LAUNCH, Fake, assert_refused, assert_sentence, labels, options, run

CLASS = "# spring\nada\nben  # from the other course\n\ngrace instructor\n"


@pytest.fixture
def names(tmp_path) -> str:
    """A class's file with two learners and an instructor."""
    (tmp_path / "names.txt").write_text(CLASS)
    return str(tmp_path / "names.txt")


@pytest.fixture
def state(tmp_path) -> Path:
    """The folder of the class, which does not exist yet."""
    return tmp_path / "operator" / ".local" / "share" / COURSE / "hub"


def passwords(out: str) -> dict[str, str]:
    """Name → password in a table."""
    return dict(re.findall(r"^(\w+) +(?:learner|instructor) +([a-z0-9-]{19})$", out, re.M))


def members(state: Path) -> dict:
    return json.loads((state / "class.json").read_text())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def lab_of(engine: Fake, name: str, status: str = "running", gpus: str = "") -> None:
    """A lab, as the hub starts it."""
    lab = {"labels": {f"{COURSE}.hub-lab": name, f"{COURSE}.gpus": gpus}, "token": "", "state": status}
    engine.change(containers={**engine.state()["containers"], f"course-lab-{name}": lab})


# --- the start ----------------------------------------------------------------------------------------------


def test_the_hub_gets_the_state_and_the_engines_socket(start, names, state, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    engine = start("laptop")
    assert main(["hub", "--class", names]) == 0
    created = engine.call("create", "--name", "course-hub")
    assert options(created) == {
        "--name": ["course-hub"],
        "--network": ["course-hub"],
        "--restart": ["unless-stopped"],
        "--security-opt": ["no-new-privileges"],
        "--ulimit": ["nofile=65536", "nproc=-1", "memlock=-1", "stack=67108864"],
        "--memory": ["1g"],
        "--pids-limit": ["1024"],
        "--log-driver": ["json-file"],
        "--log-opt": ["max-size=10m"],
        "--publish": ["127.0.0.1:8000:8000"],
        "--volume": [f"{state}:/srv/state", "/var/run/docker.sock:/var/run/docker.sock"],
    }
    assert labels(created) == {"hub": "course-hub"}
    assert created[-1] == f"{COURSE}:hub"
    assert engine.state()["networks"] == ["course-hub"]
    settings = json.loads((state / "hub.json").read_text())
    assert settings["images"] == {
        "hub": f"{COURSE}:hub",
        "learner": f"{COURSE}:cpu-learner",
        "instructor": f"{COURSE}:cpu-instructor",
    }
    chosen = {name: settings[name] for name in ("engine", "state", "hours", "data", "domain", "login", "connect")}
    assert chosen == {
        "engine": "docker",
        "state": str(state),
        "hours": 1.0,
        "data": "",
        "domain": "",
        "login": "",
        "connect": "course-hub",
    }
    assert settings["hostname"] == socket.gethostname()
    assert settings["timezone"] == "Europe/Berlin"
    assert (settings["memory"], settings["gpus_each"], settings["gpus"]) == (3072, 0, [])
    assert settings["cores"] == {"labs": [0, 1, 2, 3, 4, 5], "slots": [[6, 7]]} and settings["cpuset"]


def test_passwords_are_printed_once_and_kept_as_hashes(start, capsys, names, state):
    start("laptop")
    assert main(["hub", "--class", names]) == 0
    out = capsys.readouterr().out
    assert "http://127.0.0.1:8000, for 2 learners and 1 instructor" in out
    made = passwords(out)
    assert set(made) == {"ada", "ben", "grace"} and len(set(made.values())) == 3
    content = members(state)
    assert {name: one["role"] for name, one in content.items()} == {
        "ada": "learner",
        "ben": "learner",
        "grace": "instructor",
    }
    assert all(matches(made[name], one["scrypt"]) for name, one in content.items())
    assert not matches(made["ada"], content["ben"]["scrypt"])
    assert main(["hub", "stop"]) == 0
    everything = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert not any(password.encode() in everything for password in made.values())

    Path(names).write_text(CLASS + "eva\n")
    assert main(["hub", "--class", names]) == 0
    assert set(passwords(capsys.readouterr().out)) == {"eva"}
    assert {name: members(state)[name] for name in content} == content


def test_nobody_else_reads_the_state(start, names, state, monkeypatch):
    start("laptop")
    before = os.umask(0)
    try:
        assert main(["hub", "--class", names]) == 0
    finally:
        os.umask(before)
    assert mode(state) == 0o700
    assert mode(state / "class.json") == mode(state / "hub.json") == 0o600
    assert mode(state / "calibration" / "calibration.json") == 0o644  # mounted into labs


def test_the_host_is_calibrated_once_for_an_image_on_the_cores_of_a_slot(start, names, state):
    engine = start("laptop")
    assert main(["hub", "--class", names]) == main(["hub", "stop"]) == 0
    (call,) = [call for call in engine.calls() if "course_grader.script.calibration" in call]
    given = options(call)
    assert given["--cpuset-cpus"] == ["6-7"]
    assert given["--hostname"] == [socket.gethostname()]
    assert given["--cap-drop"] == ["ALL"]
    place = call.index("python")
    command = "python -m course_grader.script.calibration --ranks 2"
    assert call[place - 1 :] == [f"{COURSE}:cpu-learner", *command.split()]
    assert "calibration.json" in (state / "calibration" / "calibration.json").read_text()
    assert main(["hub"]) == 0
    assert len([call for call in engine.calls() if "course_grader.script.calibration" in call]) == 1
    assert set(engine.state()["containers"]) == {"course-hub"}


@pytest.mark.parametrize("damage", ["link", "text", "nothing"])
def test_only_a_file_with_json_is_a_measurement(start, capsys, names, state, monkeypatch, tmp_path, damage):
    start("laptop")
    (tmp_path / "other").write_text("{}")
    (tmp_path / "other").chmod(0o600)

    def run_once(engine, name, arguments, files):
        ((_, target),) = files
        if damage == "link":
            target.symlink_to(tmp_path / "other")
        elif damage == "text":
            target.write_text("{")
        return 0

    monkeypatch.setattr(Docker, "run_once", run_once)
    assert main(["hub", "--class", names]) == 1
    assert "The measurement of this host is damaged" in capsys.readouterr().err
    assert not state.exists() and mode(tmp_path / "other") == 0o600


def test_another_processor_is_measured_again(start, names, monkeypatch):
    engine = start("laptop")
    assert main(["hub", "--class", names]) == main(["hub", "stop"]) == 0
    monkeypatch.setattr(host, "processor", lambda: "another one")
    assert main(["hub"]) == 0
    assert len([call for call in engine.calls() if "course_grader.script.calibration" in call]) == 2


def test_a_folder_of_data_sets_is_remembered_until_another_is_named(start, capsys, names, state, monkeypatch, tmp_path):
    start("laptop")
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path / "data"))
    assert main(["hub", "--class", names]) == main(["hub", "stop"]) == 0
    monkeypatch.delenv("COURSE_DATA_DIR")
    capsys.readouterr()
    assert main(["hub"]) == main(["hub", "stop"]) == 0
    assert f"Labs get the data sets in {tmp_path / 'data'}" in capsys.readouterr().err
    assert json.loads((state / "hub.json").read_text())["data"] == str(tmp_path / "data")
    monkeypatch.setenv("COURSE_DATA_DIR", "")
    assert main(["hub"]) == 0
    assert json.loads((state / "hub.json").read_text())["data"] == ""


def test_what_is_left_out_is_as_it_was_at_the_last_start(start, capsys, names, state):
    engine = start("laptop")
    assert main(["hub", "--class", names, "--port", "9000", "--hours", "0.5", "--domain", "course.localhost"]) == 0
    assert "http://course.localhost:9000" in capsys.readouterr().out
    assert main(["hub", "stop"]) == 0
    assert main(["hub", "--port", "9001"]) == 0
    settings = json.loads((state / "hub.json").read_text())
    assert (settings["hours"], settings["port"], settings["domain"]) == (0.5, 9001, "http://course.localhost:9001")
    assert options(engine.calls()[-2])["--publish"] == ["127.0.0.1:9001:8000"]


def test_another_login_needs_neither_names_nor_passwords(start, capsys, names, state):
    start("laptop")
    logins = paths.ROOT / "containers" / "hub" / "logins"
    logins.mkdir(parents=True)
    (logins / "oauth.py").touch()
    assert main(["hub", "--login", "oauth"]) == 0
    assert "The hub runs at http://127.0.0.1:8000.\n" in capsys.readouterr().out
    assert main(["hub", "stop"]) == main(["hub", "--class", names]) == 0  # the class says who instructs
    assert not passwords(capsys.readouterr().out)
    assert json.loads((state / "hub.json").read_text())["login"] == "oauth"
    assert {name: member["scrypt"] for name, member in members(state).items()} == {"ada": "", "ben": "", "grace": ""}
    assert main(["hub", "stop"]) == main(["hub", "--login", "class"]) == 0
    assert set(passwords(capsys.readouterr().out)) == {"ada", "ben", "grace"}


def test_a_hub_that_has_ended_is_made_anew_beside_labs_that_go_on(start, names):
    engine = start("laptop")
    assert main(["hub", "--class", names]) == 0
    lab_of(engine, "ada")
    containers = engine.state()["containers"]
    containers["course-hub"]["state"] = "exited"
    engine.change(containers=containers)
    assert main(["hub"]) == 0
    assert {name: one["state"] for name, one in engine.state()["containers"].items()} == {
        "course-hub": "running",
        "course-lab-ada": "running",
    }


@pytest.mark.parametrize("roles", ["learner", "instructor"])
def test_what_is_missing_is_built(start, tmp_path, roles):
    engine = start("laptop", broken={"image inspect": "No such image"})
    (tmp_path / "names.txt").write_text(f"ada {roles}\n")
    assert main(["hub", "--class", str(tmp_path / "names.txt")]) == 1  # the fake's images are never there
    built = [options(call)["--tag"][0] for call in engine.calls() if call[0] == "build"]
    more = [f"{COURSE}:cpu-instructor"] if roles == "instructor" else []
    assert built == [f"{COURSE}:hub", f"{COURSE}:cpu-learner", *more]


def test_podmans_service_is_started_and_ended_if_nobody_listens(start, names, state, tmp_path):
    engine = start("laptop", "podman")
    assert main(["hub", "--class", names]) == 0
    process_id = json.loads((state / "hub.json").read_text())["podman_service"]
    assert f"{tmp_path}/api:/var/run/docker.sock" in options(engine.calls()[-2])["--volume"]
    assert b"service" in Path(f"/proc/{process_id}/cmdline").read_bytes()
    assert main(["hub", "stop"]) == 0
    assert os.waitpid(process_id, 0)[1] == signal.SIGTERM
    assert engine.empty


def test_without_a_name_server_the_hub_has_a_fixed_address(start, names, state, tmp_path):
    engine = start("laptop", "podman")
    engine.change(dns=False)
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(tmp_path / "api"))
        service.listen()
        assert main(["hub", "--class", names]) == 0
    settings = json.loads((state / "hub.json").read_text())
    assert options(engine.call("create", "--name", "course-hub"))["--ip"] == ["10.89.0.254"] == [settings["connect"]]
    assert settings["podman_service"] == 0
    assert main(["hub", "stop"]) == 0


def test_a_shell_takes_what_a_dry_run_prints(start, monkeypatch, capsys, names, state):
    programs = os.environ["PATH"]
    engine = start("laptop")
    monkeypatch.setattr(hub_settings.socket, "gethostname", lambda: "host")
    assert main(["hub", "--class", names, "--dry-run"]) == 0
    assert engine.calls() == [] and not state.exists()
    script = capsys.readouterr().out
    assert not passwords(script)
    env = {**os.environ, "PATH": f"{engine.path}{os.pathsep}{programs}"}
    subprocess.run(["sh", "-euc", script], env=env, check=True, stdout=subprocess.DEVNULL)
    by_shell = engine.calls()
    shutil.rmtree(state)
    engine = Fake(Path(engine.path))
    assert main(["hub", "--class", names]) == 0
    without_random = [
        re.sub(r"course-calibration-[0-9a-f]+", "course-calibration", " ".join(c)) for c in engine.calls()
    ]
    assert without_random == [" ".join(call) for call in by_shell] != []


CAPACITY = (
    ("dgx", 5, r"96 cores for labs, 48 labs can train at a time .*; 16 assessments at a time", False, False),
    ("laptop", 5, r"3 labs can train at a time .*; 1 assessment at a time", True, False),
    ("laptop", 2, r"3 labs can train at a time", False, False),
    ("small", 1, r"1 lab can train at a time", False, True),
)


@pytest.mark.parametrize(("name", "users", "sentence", "warns", "shared"), CAPACITY)
def test_the_operator_reads_how_many_labs_fit(start, capsys, tmp_path, name, users, sentence, warns, shared):
    start(name)
    (tmp_path / "names.txt").write_text("".join(f"learner-{i}\n" for i in range(users)))
    assert main(["hub", "--class", str(tmp_path / "names.txt")]) == 0
    err = capsys.readouterr().err
    assert re.search(sentence, err)
    assert (f"The class has {users} names" in err) == warns
    assert ("it has too few cores" in err) == shared


@pytest.mark.parametrize(
    ("cores", "labs", "slots"),
    [(1, 1, [[0]]), (3, 3, [[0, 1, 2]]), (4, 2, [[2, 3]]), (16, 12, [[12, 13], [14, 15]])],
)
def test_cores_of_assessments_are_not_those_of_labs(cores, labs, slots):
    divided = hub_settings.divide_cores(list(range(cores)), reserve=True)
    assert divided == {"labs": list(range(labs)), "slots": slots}


# --- refusals -----------------------------------------------------------------------------------------------


BAD_CLASSES = (
    ("ada\nBen\n", "line 2: Ben is not a valid name"),
    ("ada\n../etc\n", "line 2: ../etc is not a valid name"),
    ("1ada\n", "line 1: 1ada is not a valid name"),
    (f"{'a' * 33}\n", "line 1: a+ is not a valid name"),
    ("ada\n# comment\nada\n", "line 3: ada is there twice"),
    ("ada teacher\n", "line 1: a line is `name` or `name instructor`"),
    ("ada ben\n", "line 1: a line is"),
    ("grace instructor too\n", "line 1: a line is"),
    ("assessment\n", "line 1: assessment is not a valid name: .* not that of a lab"),
    ("ada\nlab1_gradient_descent\n", "line 2: lab1_gradient_descent is not a valid name"),
    ("# nobody\n\n", "has no names"),
    ("\xff\n".encode("latin-1"), "it is not a text file in UTF-8"),
)


@pytest.mark.parametrize(("text", "sentence"), BAD_CLASSES)
def test_a_bad_line_of_the_class_is_named(start, capsys, tmp_path, state, text, sentence):
    engine = start("laptop")
    (tmp_path / "names.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["hub", "--class", str(tmp_path / "names.txt")]) == 2
    assert_sentence(*capsys.readouterr(), sentence)
    assert engine.empty and not state.exists()


REFUSALS = (
    ("laptop", "", 2, "The hub needs a class"),
    ("laptop", "--class /nowhere", 2, "--class /nowhere cannot be read: No such file"),
    ("laptop", "--class NAMES --hours never", 2, "--hours never is not valid"),
    ("laptop", "--class NAMES --hours 0", 2, "--hours 0 is not valid"),
    ("laptop", "--class NAMES --port http", 2, "--port http is not valid"),
    ("laptop", "--class NAMES --domain a/b", 2, "--domain a/b is not valid"),
    ("laptop", "--class NAMES --login ldap", 2, "--login ldap is not valid: choose one of class"),
    ("laptop", "--class NAMES --gpus-each 1", 2, "--gpus-each 1 is more than the 0 GPUs"),
    ("dgx", "--class NAMES --gpus-each 9", 2, "--gpus-each 9 is more than the 8 GPUs"),
    ("laptop", "--class NAMES --state /tmp/a:b", 2, "cannot mount a folder with ':'"),
    ("laptop", "--class NAMES --engine apptainer", 2, "invalid choice: 'apptainer'"),
    ("laptop", "add", 2, "required: NAME"),
    ("laptop", "add ada", 2, "There is no class"),
    ("laptop", "remove ada", 2, "There is no class"),
    ("laptop", "backup /tmp/backup.tar.gz", 2, "There is no class"),
    ("laptop", "remove ada --dry-run", 2, "--dry-run does not go with `hub remove`"),
    ("laptop", "--dry-run add ada", 2, "--dry-run does not go with `hub add`"),
    ("laptop", "restore /nowhere", 2, "There is no file /nowhere"),
)


@pytest.mark.parametrize(("on", "words", "code", "sentence"), REFUSALS)
def test_what_is_not_valid_is_refused_in_a_sentence(start, capsys, names, state, on, words, code, sentence):
    engine = start(on)
    assert main(["hub", *words.replace("NAMES", names).split()]) == code
    assert_sentence(*capsys.readouterr(), sentence)
    assert engine.calls() == [] and not state.exists()


def test_an_old_podman_gives_no_gpus_to_the_hub(start, capsys, names):
    start("dgx", "podman")
    assert main(["hub", "--class", names, "--gpus-each", "1"]) == 1
    assert_sentence(*capsys.readouterr(), r"Podman 4\.3\.1 gives no GPUs through its API: install Podman 5\.4")


def test_labs_on_gpus_get_all_cores_and_measure_themselves(start, names, state):
    engine = start("dgx")
    assert main(["hub", "--class", names, "--gpus-each", "2"]) == 0
    settings = json.loads((state / "hub.json").read_text())
    assert (settings["gpus"], settings["gpus_each"], settings["cpuset"]) == (list(range(8)), 2, False)
    assert settings["images"]["learner"] == f"{COURSE}:gpu-learner"
    assert settings["cores"]["labs"] == list(range(128))
    assert not any("course_grader.script.calibration" in call for call in engine.calls())


def test_a_hub_that_runs_is_not_started_twice(start, capsys, names):
    engine = start("laptop")
    assert main(["hub", "--class", names]) == 0
    capsys.readouterr()
    calls = engine.calls()
    assert main(["hub", "--class", names]) == 2
    assert_sentence(*capsys.readouterr(), "The hub runs already")
    assert engine.calls() == calls


def test_another_ones_container_is_left_alone(start, capsys, names):
    engine = start("laptop")
    engine.change(containers={"course-hub": {"labels": {}, "token": "", "state": "running"}})
    assert main(["hub", "--class", names]) == 1
    assert_sentence(*capsys.readouterr(), "a container course-hub that the launcher has not made")
    assert engine.calls() == []


@pytest.mark.parametrize("command", ["", "list", "stop"])
def test_without_an_engine_a_sentence_says_what_to_install(tmp_path, command):
    done = run("hub", *command.split(), path=str(tmp_path), HOME=str(tmp_path))
    assert_refused(done, 1, "no container engine here: the hub needs Docker or Podman")


# --- undoing ------------------------------------------------------------------------------------------------


FAILURES = (
    ({"network create": "no subnet is free"}, r"failed at `docker network` \(no subnet is free\)"),
    ({"start --attach": 2}, r"could not be calibrated \(exit code 2\)"),
    ({"create": "no space left"}, r"failed at `docker create` \(no space left\)"),
    ({"start course-hub": "port is already allocated"}, "port is already allocated"),
)


@pytest.mark.parametrize(("broken", "sentence"), FAILURES)
def test_what_was_begun_is_undone(start, capfd, names, state, broken, sentence):
    engine = start("laptop", broken=broken)
    assert main(["hub", "--class", names]) == 1
    assert re.search(sentence, capfd.readouterr().err)
    assert engine.empty and not state.exists()


def test_a_failed_start_leaves_the_operators_login_file(start, names, state, monkeypatch):
    engine = start("laptop", broken={"start course-hub": "port is already allocated"})

    def write_login(engine):
        (state / "login.json").write_text("{}")
        (state / "hub").mkdir()  # as the hub makes it
        return "", []

    monkeypatch.setattr(hub_start, "_hub_address", write_login)
    assert main(["hub", "--class", names]) == 1
    assert engine.empty and [path.name for path in state.iterdir()] == ["login.json"]


def test_a_failed_start_leaves_the_class_as_it_was(start, capsys, names, state):
    engine = start("laptop")
    assert main(["hub", "--class", names]) == main(["hub", "stop"]) == 0
    before = {path: path.read_bytes() for path in state.glob("*.json")}
    Path(names).write_text(CLASS + "eva\n")
    engine.change(broken={"start course-hub": "port is already allocated"})
    assert main(["hub", "--class", names, "--hours", "3"]) == 1
    assert engine.empty
    assert {path: path.read_bytes() for path in state.glob("*.json")} == before


def test_a_hub_that_ends_says_why_and_is_gone(tmp_path, names):
    engine = Fake(tmp_path, starts_as="exited")
    done = run("hub", "--class", names, "--port", str(free_port()), path=engine.path, HOME=str(tmp_path / "operator"))
    assert done.returncode == 1
    assert re.search(r"ended as it started, so it was removed: Horovod was built without NCCL\.\n$", done.stderr)
    assert engine.empty and not (tmp_path / "operator" / ".local" / "share" / COURSE / "hub").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["docker", "podman"])
def test_an_interrupted_start_leaves_nothing(tmp_path, names, number, name):
    engine = Fake(tmp_path, command=name)
    env = {"PATH": engine.path, "HOME": str(tmp_path / "operator")}
    command = [sys.executable, "-I", str(LAUNCH), "hub", "--class", names, "--port", str(free_port())]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while ["start", "course-hub"] not in engine.calls():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and not passwords(out)
    assert err.splitlines()[-1] == "launch: interrupted."
    assert engine.empty and not (tmp_path / "operator" / ".local" / "share" / COURSE / "hub").exists()
    if name == "podman":
        with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
            client.connect(str(tmp_path / "api"))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


# --- the class while the hub runs ---------------------------------------------------------------------------


@pytest.fixture
def hub(start, names, capsys) -> Fake:
    """A laptop's engine with a hub and its class."""
    engine = start("laptop")
    assert main(["hub", "--class", names]) == 0
    capsys.readouterr()
    return engine


def test_the_list_shows_who_is_in(hub, capsys):
    lab_of(hub, "ada")
    lab_of(hub, "grace", "exited")
    assert main(["hub", "list"]) == 0
    out = capsys.readouterr().out
    assert "The hub runs at http://127.0.0.1:8000; a lab that is idle for 1 h stops." in out
    assert re.search(r"^ada +learner +running +2026-11-27 14:03$", out, re.M)
    assert re.search(r"^ben +learner +none$", out, re.M)
    assert re.search(r"^grace +instructor +exited$", out, re.M)
    assert main(["hub", "stop"]) == main(["hub", "list"]) == 0
    assert "The hub does not run" in capsys.readouterr().out


def test_stop_ends_hub_and_labs_and_keeps_the_class(hub, capsys, state):
    lab_of(hub, "ada")
    assert main(["lab", "--volume", "own"]) == 0  # one that the hub has not started
    assert main(["hub", "stop", "--dry-run"]) == 0
    assert set(hub.state()["containers"]) == {"course-hub", "course-lab-ada", "own"}
    assert main(["hub", "stop"]) == 0
    assert f"Stopped the hub and 1 lab. Everyone's work stays in {state}." in capsys.readouterr().out
    assert set(hub.state()["containers"]) == {"own"} and hub.state()["networks"] == []
    stopped = [call[3:] for call in hub.calls() if call[0] == "stop"]
    assert stopped == [["course-hub"], ["course-lab-ada"]]  # the hub first, so that it starts no lab again
    assert set(members(state)) == {"ada", "ben", "grace"}
    assert main(["hub", "stop"]) == 0
    assert capsys.readouterr().out == "The hub does not run.\n"


def test_stop_with_names_ends_their_labs_alone(hub, capsys):
    for name in ("ada", "ben", "grace"):
        lab_of(hub, name)
    assert main(["hub", "stop", "ada", "ben", "--dry-run"]) == 0
    assert main(["hub", "stop", "ada", "eva"]) == 2
    assert "There is no lab of eva: `launch hub list` shows the labs" in capsys.readouterr().err
    assert len(hub.state()["containers"]) == 4
    assert main(["hub", "stop", "ada", "ben"]) == 0
    assert capsys.readouterr().out == "Stopped the lab of ada, ben.\n"
    assert set(hub.state()["containers"]) == {"course-hub", "course-lab-grace"}


def test_a_gpu_of_the_hubs_labs_is_not_given_to_another_one(start, capsys):
    engine = start("dgx")
    lab_of(engine, "ada", gpus="0,1")
    assert main(["lab", "--gpus", "1"]) == 1
    assert_sentence(*capsys.readouterr(), "GPU 1 belongs to a running lab; free are 2,3,4,5,6,7")


def test_a_stop_of_labs_leaves_those_of_the_hub(hub):
    lab_of(hub, "ada")
    assert main(["stop"]) == 0
    assert set(hub.state()["containers"]) == {"course-hub", "course-lab-ada"}


def test_a_name_that_is_added_gets_a_password_and_one_that_is_there_a_new_one(hub, capsys, state):
    before = members(state)
    assert main(["hub", "add", "eva", "ada"]) == 0
    made = passwords(capsys.readouterr().out)
    after = members(state)
    assert set(made) == {"eva", "ada"} and all(matches(made[name], after[name]["scrypt"]) for name in made)
    assert after["eva"]["role"] == "learner" and after["ben"] == before["ben"] and mode(state / "class.json") == 0o600
    assert main(["hub", "add", "grace"]) == 0
    assert members(state)["grace"]["role"] == "instructor"  # a new password changes no role
    assert main(["hub", "add", "Eva"]) == 2


def test_a_new_password_ends_the_lab_that_was_opened_with_the_old_one(hub):
    lab_of(hub, "ada")
    lab_of(hub, "ben")
    assert main(["hub", "add", "ada", "eva"]) == 0
    assert set(hub.state()["containers"]) == {"course-hub", "course-lab-ben"}


def test_who_was_removed_is_kept_out_until_the_name_is_added_again(hub, names, state):
    def removed():
        return json.loads((state / "removed.json").read_text())

    assert main(["hub", "remove", "ada", "ben"]) == 0
    assert removed() == ["ada", "ben"] and mode(state / "removed.json") == 0o600
    assert main(["hub", "add", "ben"]) == 0
    assert removed() == ["ada"]
    assert main(["hub", "stop"]) == main(["hub", "--class", names]) == 0
    assert removed() == []


def test_whom_the_platform_sends_can_be_removed_and_added_without_a_class(start, state):
    start("laptop")
    (paths.ROOT / "containers" / "hub" / "logins").mkdir(parents=True)
    (paths.ROOT / "containers" / "hub" / "logins" / "lti13.py").touch()
    assert main(["hub", "--login", "lti13"]) == main(["hub", "remove", "ben"]) == 0
    assert json.loads((state / "removed.json").read_text()) == ["ben"]
    assert main(["hub", "add", "ben"]) == 0
    assert json.loads((state / "removed.json").read_text()) == []


def test_a_lab_that_was_opened_while_the_hub_restarts_is_removed(hub, monkeypatch):
    def run(engine, *arguments, **options):
        real(engine, *arguments, **options)
        if arguments[0] == "restart":
            lab_of(hub, "ada")

    real = Docker.run
    monkeypatch.setattr(Docker, "run", run)
    assert main(["hub", "remove", "ada"]) == 0
    assert set(hub.state()["containers"]) == {"course-hub"}


def test_who_becomes_an_instructor_gets_an_instructors_lab(hub, capsys, state):
    lab_of(hub, "ada")
    assert main(["hub", "add", "ada", "--instructor"]) == 0
    assert members(state)["ada"]["role"] == "instructor"
    assert set(hub.state()["containers"]) == {"course-hub"}
    assert "ada is an instructor now" in capsys.readouterr().err


def work(state: Path, name: str) -> list[Path]:
    """Files that a learner has written, and got."""
    files = [state / place / name / "file" for place in ("workspaces", "exchange/inbound", "exchange/feedback")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(name)
    return files


def test_who_is_removed_loses_account_and_lab_and_keeps_the_work(hub, capsys, state):
    files = work(state, "ada")
    lab_of(hub, "ada")
    lab_of(hub, "ben")
    assert main(["hub", "remove", "ada"]) == 0
    assert set(members(state)) == {"ben", "grace"}
    assert set(hub.state()["containers"]) == {"course-hub", "course-lab-ben"}
    assert hub.calls()[-1] == ["restart", "course-hub"]  # it forgets the account
    assert all(file.exists() for file in files)
    capsys.readouterr()
    assert main(["hub", "remove", "ada"]) == 2
    assert_sentence(*capsys.readouterr(), "There is no ada in the class")


def test_delete_says_what_goes_and_removes_that_learners_work_alone(hub, capsys, state):
    ada, ben = work(state, "ada"), work(state, "ben")
    assert main(["hub", "remove", "ada", "--delete"]) == 0
    said = capsys.readouterr().err
    assert all(f"{place}/ada" in said for place in ("workspaces", "exchange/inbound", "exchange/feedback"))
    assert not any(file.parent.exists() for file in ada) and all(file.exists() for file in ben)
    assert main(["hub", "remove", "ada", "--delete"]) == 0  # again, as after a failure
    assert main(["hub", "remove", "..", "--delete"]) == 2


def test_a_backup_has_all_and_is_restored_elsewhere(hub, capsys, state, tmp_path):
    files = work(state, "ada")
    cache = state / "workspaces" / "ada" / ".cache" / "data"
    cache.parent.mkdir()
    cache.touch()
    target, other = tmp_path / "backup.tar.gz", tmp_path / "other"
    assert main(["hub", "backup", str(target)]) == 0
    assert mode(target) == 0o600
    assert main(["hub", "stop"]) == 0
    capsys.readouterr()
    assert main(["hub", "restore", str(target)]) == 2
    assert_sentence(*capsys.readouterr(), "There is a class in .*, and `restore` replaces none")
    assert main(["hub", "restore", str(target), "--state", str(other)]) == 0
    assert members(other) == members(state) and mode(other) == 0o700
    assert all((other / file.relative_to(state)).read_text() == "ada" for file in files)
    assert not (other / cache.relative_to(state)).exists() and not (other / "calibration").exists()
    times = json.loads((other / "exchange" / "outbound" / ".restored.json").read_text())
    assert times["backup"] == json.loads((state / "backup.json").read_text())["time"]
    files = [file for file in other.rglob("*") if file.is_file() and file.name != ".restored.json"]
    assert times["backup"] < max(file.stat().st_ctime for file in files) <= times["restored"]
    assert main(["hub", "--state", str(other)]) == 0
    assert json.loads((other / "hub.json").read_text())["state"] == str(other)


def test_a_sparse_file_takes_no_space_in_a_backup(hub, state, tmp_path):
    (file,) = work(state, "ada")[:1]
    os.truncate(file, 2**30)
    assert main(["hub", "backup", str(tmp_path / "backup.tar.gz")]) == 0
    assert (tmp_path / "backup.tar.gz").stat().st_size < 100_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_restored_class_belongs_to_who_restores_it(hub, state, tmp_path):
    for path in (state, *state.glob("*.json")):
        os.chown(path, 12345, 12345)  # who made the backup
    assert main(["hub", "backup", str(tmp_path / "backup.tar.gz")]) == 0
    assert main(["hub", "restore", str(tmp_path / "backup.tar.gz"), "--state", str(tmp_path / "other")]) == 0
    assert {path.stat().st_uid for path in (tmp_path / "other", *(tmp_path / "other").glob("*.json"))} == {0}


def test_a_link_beside_the_archive_is_not_followed(hub, tmp_path):
    (tmp_path / "private").write_text("mine")
    (tmp_path / ".backup.tar.gz.part").symlink_to(tmp_path / "private")
    assert main(["hub", "backup", str(tmp_path / "backup.tar.gz")]) == 0
    assert (tmp_path / "private").read_text() == "mine"


def test_a_backup_that_fails_leaves_no_file(hub, capsys, tmp_path, state):
    hub.change(broken={"run": 2})
    assert main(["hub", "backup", str(tmp_path / "second.tar.gz")]) == 1
    assert_sentence(*capsys.readouterr(), "The backup failed .*; no file was written")
    assert not list(tmp_path.glob("*second*")) and not list(tmp_path.glob(".*part"))
    (tmp_path / "there").touch()
    assert main(["hub", "backup", str(tmp_path / "there")]) == 2
    assert main(["hub", "backup", str(state / "backup.tar.gz")]) == 2


def test_an_interrupted_backup_leaves_neither_file_nor_container(hub, monkeypatch, tmp_path):
    started = []

    def interrupt(engine, *arguments, **files):
        started.append(arguments[arguments.index("--name") + 1])
        raise KeyboardInterrupt

    monkeypatch.setattr(EngineClient, "pipe", interrupt)
    assert main(["hub", "backup", str(tmp_path / "backup.tar.gz")]) == 130
    assert not list(tmp_path.glob("*backup*"))
    assert hub.calls()[-1] == ["rm", "--force", *started]


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_what_is_no_backup_is_not_restored(start, capsys, tmp_path, state, content):
    start("laptop")
    (tmp_path / "file").write_bytes(content)
    assert main(["hub", "restore", str(tmp_path / "file")]) in (1, 2)
    assert_sentence(*capsys.readouterr(), "nothing was restored")
    assert not state.exists()
