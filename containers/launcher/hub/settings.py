"""The settings of a hub, hub.json: what the operator chooses, and what this host and its engine have."""

from __future__ import annotations

import argparse
import os
import re
import socket
from pathlib import Path

from containers.launcher import host
from containers.launcher.engine import Engine
from containers.launcher.lab import PREFIX, PROCESSES, SHARED_MEMORY, ULIMITS
from containers.launcher.text import notice, plural
from course_lib.system import paths
from course_lib.system.errors import CourseError

HUB = "course-hub"  # the hub's container, and the network of hub and labs
HUB_LABEL = f"{PREFIX}.hub"
HUB_LAB_LABEL = f"{PREFIX}.hub-lab"  # its value is the user's name
DEFAULTS = {"hours": 1.0, "gpus_each": 0, "port": 8000, "bind": "127.0.0.1", "domain": "", "login": "class"}
LAB_MEMORY = 3072  # MB that a lab may take
LAB_CORES = 2  # the two ranks of the notebooks and of the assessment
CORES_FOR_SLOTS = 4  # with fewer cores nothing is reserved for assessments
CORES_PER_SLOT = 8  # of the host's: a slot of two of them


def plan_settings(options: argparse.Namespace, previous: dict, engine: Engine, state: Path) -> dict:
    """Return the content of hub.json; `previous`, the last start's settings, has what `options` leave out.

    Raises CourseError if this host or its engine lacks something.
    """
    chosen = {**DEFAULTS, **previous.get("chosen", {})}
    chosen |= {name: value for name in DEFAULTS if (value := getattr(options, name)) is not None}
    # A later start, as after a reboot, may have a shell without COURSE_DATA_DIR.
    chosen["data"] = host.data_folder(os.environ.get("COURSE_DATA_DIR", chosen.get("data", "")))
    gpus = _gpus(chosen["gpus_each"], engine)
    kind = "gpu" if gpus else "cpu"
    _require_port(chosen["port"], chosen["bind"])
    cores = divide_cores(host.cores(), reserve=not gpus)
    return {
        "chosen": chosen,
        "engine": engine.command,
        "state": str(state),
        "network": HUB,
        "images": {
            "hub": engine.image("hub"),
            **{role: engine.image(kind, role) for role in ("learner", "instructor")},
        },
        "hostname": socket.gethostname(),
        "timezone": host.timezone(),
        "hours": chosen["hours"],
        "data": chosen["data"],
        "memory": LAB_MEMORY if "memory" in engine.controllers else 0,
        "shared_memory": SHARED_MEMORY,
        "processes": PROCESSES if "pids" in engine.controllers else 0,
        "ulimits": {name: engine.ulimit(name, most) for name, most in ULIMITS.items()},
        "cores": cores,
        "cpuset": "cpuset" in engine.controllers and len(cores["labs"]) < len(host.cores()),
        "gpus": gpus,
        "gpus_each": chosen["gpus_each"],
        "sandbox": list(engine.sandbox_options),
        "port": chosen["port"],
        "bind": chosen["bind"],
        "domain": domain_url(chosen["domain"], chosen["port"]),
        "login": "" if chosen["login"] == "class" else chosen["login"],
    }


def divide_cores(cores: list[int], reserve: bool) -> dict[str, list]:
    """Return the labs' cores, and the slots that only assessments use: two of each eight cores.

    With fewer than four cores, or nothing to reserve, there is one slot, which the labs share.
    """
    if len(cores) < CORES_FOR_SLOTS or not reserve:
        return {"labs": cores, "slots": [cores]}
    reserved = LAB_CORES * max(1, len(cores) // CORES_PER_SLOT)
    labs, rest = cores[:-reserved], cores[-reserved:]
    return {"labs": labs, "slots": [rest[i : i + LAB_CORES] for i in range(0, reserved, LAB_CORES)]}


def _gpus(each: int, engine: Engine) -> list[int]:
    """Return the GPUs that the hub's labs may get. Raises CourseError if there are fewer than one lab needs."""
    if not each:
        return []
    gpus = host.gpus()
    if each > len(gpus):
        raise CourseError(
            f"--gpus-each {each} is more than the {plural(len(gpus), 'GPU')} of this host; with --gpus-each 0 ranks "
            "run on the processor's cores.",
            2,
        )
    if problem := "" if engine.dry_run else engine.gpu_problem() or engine.hub_gpu_problem():
        raise CourseError(problem)
    return gpus


def _require_port(port: int, address: str) -> None:
    if not host.port_is_free(port, address):
        raise CourseError(f"Port {port} cannot be used, something else listens there: choose another --port.", 2)


def domain_url(domain: str, port: int) -> str:
    """Return the hub's address for browsers; "" without a domain. A name alone is served at the hub's own port."""
    if not domain:
        return ""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", domain):
        return f"http://{domain}:{port}"
    if re.fullmatch(r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?", domain):
        return domain
    raise CourseError(f"--domain {domain} is not valid: give hub.example.org, or https://hub.example.org.", 2)


def address(settings: dict) -> str:
    """Return the address that users open."""
    name = socket.gethostname() if settings["bind"] == "0.0.0.0" else settings["bind"]
    return settings["domain"] or f"http://{name}:{settings['port']}"


def print_capacity(settings: dict, users: int) -> None:
    """Print how many labs can train at the same time on this host, and how many assessments."""
    memory, cores, slots = host.memory(), len(settings["cores"]["labs"]), len(settings["cores"]["slots"])
    labs = min(int(0.9 * memory) // LAB_MEMORY, max(1, cores // LAB_CORES))
    if settings["gpus"]:
        labs = min(labs, len(settings["gpus"]) // settings["gpus_each"])
    notice(
        f"With {memory / 1024:.0f} GB of memory and {cores} cores for labs, {plural(labs, 'lab')} can train at a time "
        f"({LAB_MEMORY // 1024} GB and {LAB_CORES} cores each); {plural(slots, 'assessment')} at a time."
    )
    if users > labs:
        notice(
            f"The class has {plural(users, 'name')}: a lab takes 130 to 260 MB until ranks run, so more labs can be "
            f"open, but if more than {labs} train at the same time, they are slower or run out of memory."
        )
    if not settings["cpuset"] and not settings["gpus"]:
        reason = "the engine may not bind containers to cores" if cores >= CORES_FOR_SLOTS else "it has too few cores"
        notice(f"This host reserves no cores for assessments ({reason}): labs that train make them slower.")


def hours(text: str) -> float:
    """Return the value of `--hours`. Raises CourseError (code 2) unless it is a positive number."""
    if not re.fullmatch(r"[0-9]{0,4}\.?[0-9]{1,3}", text) or not float(text):
        raise CourseError(f"--hours {text} is not valid: give the hours after which an idle lab stops, as 1 or 0.5.", 2)
    return float(text)


def login(text: str) -> str:
    """Return the name of a login. Raises CourseError (code 2) if there is no such one."""
    logins = sorted(file.stem for file in (paths.ROOT / "containers" / "hub" / "logins").glob("*.py"))
    if text not in ("class", *logins):
        raise CourseError(f"--login {text} is not valid: choose one of {', '.join(['class', *logins])}.", 2)
    return text
