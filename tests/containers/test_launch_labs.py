"""`launch lab`, `list` and `stop`: what an engine is given, what is refused, and that nothing half-started stays."""

from __future__ import annotations

import json
import re
import socket

import pytest

from containers.launcher import host
from containers.launcher.cli import main
from course_lib.system import paths
from tests.containers.launching import COURSE, ENGINES, Fake, assert_refused, assert_sentence, labels, options, run

ALL_GPUS = "0,1,2,3,4,5,6,7"
LAB = {
    "--name": ["course"],
    "--publish": ["127.0.0.1:8888:8888"],
    "--volume": ["course:/workspace"],
    "--env": ["JUPYTER_TOKEN"],
    "--shm-size": ["1g"],
    "--ulimit": ["nofile=65536", "nproc=-1", "memlock=-1", "stack=67108864"],
    "--pids-limit": ["16384"],
    "--cap-drop": ["ALL"],
    "--security-opt": ["no-new-privileges"],
}
IN_PODMAN = {"--ulimit": ["nofile=65536", "nproc=-1", "memlock=8388608", "stack=67108864"]}  # the operator's own
ADA = {"--name": ["ada"], "--volume": ["ada:/workspace"]}
UNCONFINED = [*LAB["--security-opt"], "seccomp=unconfined", "apparmor=unconfined"]
IN_DOCKER_UNCONFINED = {"--security-opt": [*UNCONFINED, "systempaths=unconfined"]}
IN_PODMAN_UNCONFINED = {"--security-opt": [*UNCONFINED, "unmask=ALL"], **IN_PODMAN}
TWO_DEVICES = {"--device": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"], **IN_PODMAN}


@pytest.mark.parametrize(
    ("name", "on", "words", "changed", "gpus", "image"),
    [
        ("docker", "laptop", "", {}, "", "cpu-learner"),
        ("docker", "laptop", "--instructor", IN_DOCKER_UNCONFINED, "", "cpu-instructor"),
        ("podman", "laptop", "--instructor", IN_PODMAN_UNCONFINED, "", "cpu-instructor"),
        ("docker", "laptop", "--bind 0.0.0.0", {"--publish": ["0.0.0.0:8888:8888"]}, "", "cpu-learner"),
        ("docker", "laptop", "--image mine:1", {}, "", "mine:1"),
        ("docker", "dgx", "", {"--gpus": [f'"device={ALL_GPUS}"']}, ALL_GPUS, "gpu-learner"),
        ("docker", "dgx", "--gpus 0,1 --volume ada", {"--gpus": ['"device=0,1"'], **ADA}, "0,1", "gpu-learner"),
        ("podman", "dgx", "--gpus 0,1", TWO_DEVICES, "0,1", "gpu-learner"),
        ("docker", "dgx", "--gpus none --port 9000", {"--publish": ["127.0.0.1:9000:8888"]}, "", "cpu-learner"),
        ("docker", "dgx", "--gpus none --shm-size 4g", {"--shm-size": ["4g"]}, "", "cpu-learner"),
    ],
)
def test_a_lab_gets_what_it_needs_and_no_more_rights(start, name, on, words, changed, gpus, image):
    engine, wanted = start(on, name), {**LAB, **changed}
    assert main(["lab", *words.split()]) == 0
    created = engine.call("create")
    assert options(created) == wanted
    assert created[-1] == (image if ":" in image else f"{COURSE}:{image}")
    address, port, _ = wanted["--publish"][0].split(":")
    (volume,) = wanted["--name"]
    assert labels(created) == {"lab": volume, "address": address, "port": port, "gpus": gpus}
    assert engine.call("volume", "create")[-1] == engine.call("start")[-1] == volume


def test_with_apptainer_a_lab_gets_folders_of_its_own(start, tmp_path):
    engine = start(engine="apptainer")
    assert main(["lab", "--gpus", "2,3", "--bind", "0.0.0.0", "--port", "9000"]) == 0
    home = tmp_path / "operator" / ".local" / "share" / COURSE / "course"
    started = engine.call("instance", "start")
    assert " ".join(started) == (
        f"instance start --containall --home {home}/home:/home/learner --workdir {home}/scratch "
        f"--bind {home}/workspace:/workspace --pids-limit 16384 --nv {paths.ROOT}/build/gpu-learner.sif course"
    )
    environment = engine.environment(started)
    assert len(environment.pop("APPTAINERENV_JUPYTER_TOKEN")) == 48
    assert environment == {
        "APPTAINERENV_COURSE_ADDRESS": "0.0.0.0",
        "APPTAINERENV_JUPYTER_PORT": "9000",
        "APPTAINERENV_CUDA_VISIBLE_DEVICES": "2,3",
    }


@pytest.mark.parametrize("name", ENGINES)
def test_the_operators_data_sets_are_read_only_in_the_lab(start, monkeypatch, tmp_path, name):
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path))
    engine = start("laptop", name)
    assert main(["lab"]) == 0
    (made,) = (call for call in engine.calls() if "create" in call[:1] or "instance" in call)
    volumes = options(made)["--bind" if name == "apptainer" else "--volume"]
    assert f"{tmp_path}:/data:ro" in volumes
    variable = engine.environment(made).get("APPTAINERENV_COURSE_DATA_DIR")
    assert variable == "/data" or "COURSE_DATA_DIR=/data" in options(made)["--env"]


@pytest.mark.parametrize("name", ENGINES)
def test_two_labs_have_tokens_of_their_own_and_none_on_a_command_line(start, capsys, name):
    engine = start(engine=name)
    assert main(["lab", "--gpus", "0", "--volume", "ada"]) == main(["lab", "--gpus", "1", "--volume", "ben"]) == 0
    tokens = re.findall(r"token=(\w+)", capsys.readouterr().out)
    assert len(set(tokens)) == 2 and all(len(token) == 48 for token in tokens)
    environments = [engine.environment(call) for call in engine.calls()]
    assert tokens == [
        value for one in environments for variable, value in one.items() if variable.endswith("JUPYTER_TOKEN")
    ]
    assert not any(token in json.dumps(engine.calls()) for token in tokens)


def test_a_taken_port_and_another_hosts_address_are_refused(operator, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        arguments = ["lab", "--dry-run", "--engine", "docker", "--gpus", "none"]
        assert main([*arguments, "--port", str(port)]) == 2
        assert_sentence(*capsys.readouterr(), f"Port {port} cannot be used.* choose another --port")
        assert host.choose_port(None, "127.0.0.1", (), first=port) > port
        assert main([*arguments, "--bind", "192.0.2.1"]) == 2
        assert_sentence(*capsys.readouterr(), "--bind 192.0.2.1 is no address of this host")


def test_a_missing_data_folder_is_refused(operator, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_DATA_DIR", "/nowhere")
    assert main(["lab", "--dry-run", "--gpus", "none"]) == 2
    assert_sentence(*capsys.readouterr(), "COURSE_DATA_DIR names /nowhere")


# --- with an engine that fails as real ones do --------------------------------------------------------------


NO_DAEMON = {"version": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."}
NOT_ALLOWED = {"version": "permission denied while trying to connect to the Docker daemon socket"}
BUSY = {"ps": "context deadline exceeded"}
NO_IMAGE = {"image inspect": "No such image"}
NAME_TAKEN = {"create": "Conflict. The container name is already in use"}
ENGINE_FAILS = (
    *((NO_DAEMON, command, "start it with `sudo systemctl") for command in ("lab", "list", "stop", "build")),
    *((NOT_ALLOWED, command, "let this user in: use sudo") for command in ("lab", "list", "stop", "build")),
    *((BUSY, command, r"failed at `docker ps` \(context deadline") for command in ("lab", "list", "stop")),
    (NO_IMAGE, "lab", "no image one-model-many-gpus:cpu-learner .* `containers/launch build cpu`"),
    (NO_IMAGE, "lab --instructor", "`containers/launch build cpu --instructor`"),
    (NO_IMAGE, "lab --image mine:1", "no image mine:1 on this host: check its name"),
    ({}, "lab", r"ended as it started, .*: Horovod was built without NCCL\.$"),
    (NAME_TAKEN, "lab", r"Docker failed at `docker create` \(Conflict"),
)


@pytest.mark.parametrize(("broken", "words", "sentence"), ENGINE_FAILS)
def test_where_the_engine_fails_a_sentence_says_so_and_nothing_stays(tmp_path, broken, words, sentence):
    engine = Fake(tmp_path, broken, starts_as="exited")
    assert_refused(run(*words.split(), path=engine.path), 1, sentence)
    assert engine.empty
    if broken is NAME_TAKEN:
        assert not any(call[0] == "rm" for call in engine.calls()), "it is another one's container"


def test_a_driver_that_docker_cannot_reach_is_named(tmp_path):
    driver = 'Error response: could not select device driver "" with capabilities: [[gpu]]'
    engine = Fake(tmp_path, {"start course": driver})
    assert_refused(
        run("lab", path=engine.path), 1, "cannot give GPUs to containers .* install the NVIDIA Container Toolkit"
    )
    assert engine.empty


def test_gpus_ports_and_names_of_running_labs_are_not_given_twice(start, capsys):
    engine = start()
    assert main(["lab", "--gpus", "0,1,2,3,4", "--volume", "ada"]) == 0
    capsys.readouterr()
    for words, sentence in (
        ("--gpus 4,5", "GPU 4 belongs to a running lab; free are 5,6,7"),
        ("--gpus all", "Running labs hold 5 of the 8 GPUs"),
        ("--volume ada", "runs on the volume ada already"),
        ("--port 8888", "Port 8888 cannot be used"),
    ):
        assert main(["lab", *words.split()]) in (1, 2)
        assert_sentence(*capsys.readouterr(), sentence)
    assert main(["lab", "--volume", "ben"]) == 0
    assert re.search(r"ben +running +5,6,7 +http://127\.0\.0\.1:8889/", capsys.readouterr().out)
    assert main(["lab", "--volume", "eva"]) == 1
    assert_sentence(*capsys.readouterr(), "Running labs hold 8 of the 8 GPUs")
    assert main(["lab", "--gpus", "none", "--volume", "cpu"]) == 0
    assert re.search(r"cpu .*http://127\.0\.0\.1:8890/", capsys.readouterr().out)
    assert main(["stop", "ada", "ben", "cpu", "dan"]) == 2
    assert "There is no lab dan" in capsys.readouterr().err
    assert engine.state()["containers"] == {} and engine.state()["volumes"] == ["ada", "ben", "cpu"]
    assert main(["stop", "--remove-volumes"]) == 2
    assert "name the labs, or say --all" in capsys.readouterr().err
    assert engine.state()["volumes"] == ["ada", "ben", "cpu"]
    assert main(["stop", "--remove-volumes", "--all"]) == 0
    assert engine.empty
