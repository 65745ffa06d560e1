"""An engine for test_launch.py: keeps labs and volumes in a file beside it, and fails where the test says so.

It does what `docker` or `podman` does, and is `apptainer` for instances.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

FILE = Path(__file__).resolve().with_name("state.json")


def main(words: list[str]) -> None:
    """Do what the engine does with these words, in the file."""
    state = json.loads(FILE.read_text())
    given = {name: value for name, value in os.environ.items() if name.startswith(("JUPYTER_", "APPTAINERENV_"))}
    state["calls"].append({"words": words, "environment": given})
    FILE.write_text(json.dumps(state))
    action = " ".join(words[:2]) if words[0] in ("volume", "image", "instance") else words[0]
    for broken in (action, " ".join(words)):
        if broken in state["broken"]:
            sys.exit(state["broken"][broken])
    do(action, words, state)
    FILE.write_text(json.dumps(state))


def do(action: str, words: list[str], state: dict) -> None:
    """Change `state`, or print what it holds."""
    labs, volumes = state["labs"], state["volumes"]
    if action == "volume inspect" and words[2] not in volumes:
        sys.exit("no such volume")
    elif action == "volume create":
        volumes.append(words[-1])
    elif action == "volume rm":
        state["volumes"] = [name for name in volumes if name not in words[2:]]
    elif action == "volume ls":
        print(*volumes, sep="\n")
    elif action == "info":
        print(json.dumps({"host": {"cgroupControllers": ["cpuset", "memory", "pids"]}}))
    elif action == "instance list":
        print(json.dumps({"instances": [{"instance": name} for name in labs]}))
    elif action == "instance start":
        labs[words[-1]] = {"labels": {}, "state": "running"}
    elif action == "instance stop":
        del labs[words[-1]]
    elif action == "create":
        labels = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--label")
        name = words[words.index("--name") + 1]
        labs[name] = {"labels": labels, "token": os.environ.get("JUPYTER_TOKEN", ""), "state": "created"}
    elif action == "start" and words[1] == "--attach":
        print("what the container prints", flush=True)
    elif action == "cp":
        Path(words[2]).write_text(words[1])
    elif action == "start":
        labs[words[1]]["state"] = state["starts_as"]
    elif action == "stop":
        for name in words[3:]:
            labs[name]["state"] = "exited"
    elif action == "rm":
        for name in words[2:]:
            if name != "--volumes":
                del labs[name]
    elif action == "ps":
        print(*(name for name, lab in labs.items() if lab["labels"]), sep="\n")
    elif action == "logs":
        print("noise\nHorovod was built without NCCL.")
    elif action == "inspect":
        print(json.dumps([described(labs[name]) for name in words[1:]]))


def described(lab: dict) -> dict:
    """What `docker inspect` says of a lab, as far as the launcher reads it."""
    config = {"Labels": lab["labels"], "Image": "image", "Env": [f"JUPYTER_TOKEN={lab['token']}"]}
    return {"Config": config, "State": {"Status": lab["state"]}}


if __name__ == "__main__":
    main(sys.argv[1:])
