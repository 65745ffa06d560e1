"""An engine for tests of the launcher: keeps containers, volumes and networks in a file beside it, and fails where the
test says so.

It does what `docker` or `podman` does, and is `apptainer` for instances. Programs that `run` starts in a container work
on the mounted folder itself.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

FILE = Path(__file__).resolve().with_name("state.json")
TWO_WORDS = ("volume", "image", "instance", "network", "container", "context", "system")


def main(arguments: list[str]) -> None:
    """Do what the engine does with these arguments, in the file."""
    state = json.loads(FILE.read_text())
    environment = {name: value for name, value in os.environ.items() if name.startswith(("JUPYTER_", "APPTAINERENV_"))}
    state["calls"].append({"arguments": arguments, "environment": environment})
    write(state)
    action = " ".join(arguments[:2]) if arguments[0] in TWO_WORDS else arguments[0]
    for broken in (action, " ".join(arguments[:2]), " ".join(arguments)):
        if broken in state["broken"]:
            sys.exit(state["broken"][broken])
    if action == "system service":
        serve(arguments[-1].removeprefix("unix://"))
    elif action == "run":
        sys.exit(run(arguments))
    do(action, arguments, state)
    write(state)


def write(state: dict) -> None:
    """Replace the file at once: a test may read it meanwhile."""
    draft = FILE.with_suffix(".draft")
    draft.write_text(json.dumps(state))
    draft.replace(FILE)


def do(action: str, arguments: list[str], state: dict) -> None:
    """Change `state`, or print what it holds."""
    containers, volumes, networks = state["containers"], state["volumes"], state["networks"]
    if action == "volume inspect" and arguments[2] not in volumes:
        sys.exit("no such volume")
    elif action == "network inspect":
        if arguments[2] not in networks:
            sys.exit("no such network")
        print(json.dumps([{"dns_enabled": state["dns"], "subnets": [{"subnet": "10.89.0.0/24"}]}]))
    elif action == "container inspect" and arguments[2] not in containers:
        sys.exit("no such container")
    elif action == "image inspect":
        print("sha256:1" if "--format" in arguments else "[]")
    elif action == "context inspect":
        print("unix:///var/run/docker.sock")
    elif action == "volume create":
        volumes.append(arguments[-1])
    elif action == "network create":
        networks.append(arguments[-1])
    elif action == "volume rm":
        state["volumes"] = [name for name in volumes if name not in arguments[2:]]
    elif action == "network rm":
        networks.remove(arguments[-1])
    elif action == "volume ls":
        print(*volumes, sep="\n")
    elif action == "info":
        host = {"cgroupControllers": ["cpuset", "memory", "pids"], "remoteSocket": {"path": str(FILE.parent / "api")}}
        print(json.dumps({"host": host, "version": {"Version": "4.3.1"}}))
    elif action == "instance list":
        print(json.dumps({"instances": [{"instance": name} for name in containers]}))
    elif action == "instance start":
        containers[arguments[-1]] = {"labels": {}, "state": "running"}
    elif action == "instance stop":
        del containers[arguments[-1]]
    else:
        do_with_containers(action, arguments, state)


def do_with_containers(action: str, arguments: list[str], state: dict) -> None:
    """The same, for Docker's commands on containers."""
    containers = state["containers"]
    if action == "create":
        pairs = [arguments[i + 1].split("=", 1) for i, word in enumerate(arguments) if word == "--label"]
        name = arguments[arguments.index("--name") + 1]
        token = os.environ.get("JUPYTER_TOKEN", "")
        containers[name] = {"labels": dict(pairs), "token": token, "state": "created"}
    elif action == "start" and arguments[1] == "--attach":
        print("what the container prints", flush=True)
    elif action == "cp":
        Path(arguments[2]).write_text(json.dumps(arguments[1]))
    elif action == "start":
        containers[arguments[1]]["state"] = state["starts_as"]
    elif action == "stop":
        for name in arguments[3:]:
            containers[name]["state"] = "exited"
    elif action == "rm":
        for name in arguments[2:]:
            if name != "--volumes":
                del containers[name]
    elif action == "ps":
        key, _, value = arguments[-1].removeprefix("label=").partition("=")
        matching = [name for name, one in containers.items() if key in one["labels"]]
        print(*(name for name in matching if not value or containers[name]["labels"][key] == value), sep="\n")
    elif action == "logs":
        print("noise\nHorovod was built without NCCL.")
    elif action == "inspect":
        print(json.dumps([description(name, containers[name]) for name in arguments[1:]]))


def description(name: str, container: dict) -> dict:
    """What `docker inspect` says of a container, as far as the launcher reads it."""
    config = {"Labels": container["labels"], "Image": "image", "Env": [f"JUPYTER_TOKEN={container['token']}"]}
    state = {"Status": container["state"], "StartedAt": "2026-11-27T14:03:00Z"}
    return {"Name": f"/{name}", "Config": config, "State": state, "RestartCount": 0}


def run(arguments: list[str]) -> int:
    """Run the program of `run --volume FOLDER:INSIDE --entrypoint PROGRAM IMAGE …` on FOLDER; return its exit code."""
    import subprocess  # here, as the other commands are to be quick

    folder, inside = arguments[arguments.index("--volume") + 1].split(":")[:2]
    place = arguments.index("--entrypoint") + 1
    command = [word.replace(inside, folder) for word in (arguments[place], *arguments[place + 2 :])]
    return subprocess.call(command, env={"PATH": "/usr/bin:/bin"})


def serve(path: str) -> None:
    """Listen, until it is ended, at the socket of Podman's API."""
    import socket
    import time

    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1:])
