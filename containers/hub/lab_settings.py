"""What a lab's container gets: mounts, rights, limits, GPUs. Plain data, which the spawner passes to the engine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path

LABEL = "one-model-many-gpus"
EXCHANGE = "/exchange/course"  # nbgrader's folder of the course `course` in its exchange /exchange
CACHE = ".cache/one-model-many-gpus"  # in a workspace; the images set XDG_CACHE_HOME
LEARNER_ID = 1000  # the images' user
UNMASKED = "systempaths=unconfined"  # the sandbox needs a whole /proc
LOG = {
    "type": "json-file",
    "config": {"max-size": "10m"},
}  # a lab that prints without end must not fill the disk


class NoLab(Exception):
    """Why a lab can't start: a sentence for the page that the learner sees."""


def role_of(name: str, members: dict[str, dict[str, str]]) -> str:
    """Return "instructor" if the class list says so, else "learner"."""
    return members.get(name, {}).get("role", "learner")


def mounts(name: str, role: str, state: Path, settings: dict) -> list[str]:
    """Return the mounts HOST:INSIDE:MODE of a lab. `state`: the state folder's path in the hub's container.

    A learner's lab has no path to another learner's files. The inbound folder that the lab mounts says whose submission
    it is; nothing that the learner writes does.
    """
    host = Path(settings["state"])
    parts = [
        (f"workspaces/{name}", "/workspace", "rw"),
        ("exchange/outbound", f"{EXCHANGE}/outbound", "ro"),
        ("hub/jupyter_server_config.json", "/etc/jupyter/jupyter_server_config.json", "ro"),
    ]
    if role == "instructor":
        parts += [
            ("exchange/inbound", f"{EXCHANGE}/inbound", "ro"),
            ("exchange/feedback", f"{EXCHANGE}/feedback", "rw"),
        ]
    else:
        parts += [
            (f"exchange/inbound/{name}", f"{EXCHANGE}/inbound", "rw"),
            (f"exchange/feedback/{name}", f"{EXCHANGE}/feedback", "ro"),
            (f"exchange/feedback/{name}", "/workspace/feedback", "ro"),
        ]
    if not settings["gpus_each"] and (state / "calibration/calibration.json").exists():
        parts.append(("calibration/calibration.json", f"/workspace/{CACHE}/calibration.json", "ro"))
    data = [f"{settings['data']}:/data:ro"] if settings["data"] else []
    return [f"{host / source}:{target}:{mode}" for source, target, mode in parts] + data


def make_folders(name: str, role: str, state: Path) -> None:
    """Make the folders that `mounts` needs, for the images' user. Raises NoLab if that fails, as on a full disk.

    A learner can put links into a workspace, so no link in it is followed.
    """
    try:
        for folder in ("exchange/outbound", "exchange/inbound", "exchange/feedback", "workspaces"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        os.chown(state / "exchange/feedback", LEARNER_ID, LEARNER_ID)
        _make(state / "workspaces", name, CACHE)
        if role == "learner":
            _make(state / "exchange/inbound", name)
            _make(state / "exchange/feedback", name)
            _make(state / "workspaces", name, "feedback")
    except OSError as error:
        raise NoLab(
            f"The folders of {name} cannot be made on the host ({error.strerror}): tell your instructor."
        ) from error


def _make(parent: Path, name: str, inside: str = "") -> None:
    """Make the folder `name` in `parent`, and the folders `inside` in it, without following links."""
    opened = [os.open(parent, os.O_DIRECTORY)]
    try:
        for part in (name, *filter(None, inside.split("/"))):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=opened[-1])
            opened.append(os.open(part, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
            os.fchown(opened[-1], LEARNER_ID, LEARNER_ID)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def host_config(name: str, role: str, state: Path, settings: dict) -> dict:
    """Return mounts, limits and rights, as keywords of Docker's `create_host_config`.

    Only in instructors' labs does the sandbox for learners' scripts work: it needs the engine's filters switched off.
    """
    sandbox = settings["sandbox"] if role == "instructor" else ()
    given = {
        "binds": mounts(name, role, state, settings),
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", *(option for option in sandbox if option != UNMASKED)],
        "shm_size": settings["shared_memory"],
        "pids_limit": settings["processes"] or None,
        "mem_limit": f"{settings['memory']}m" if settings["memory"] else None,
        "ulimits": ulimits(settings),
        "log_config": LOG,
    }
    if settings["cpuset"]:  # without the cores of assessments
        given["cpuset_cpus"] = numbers(settings["cores"]["labs"])
    return given


def whole_proc(role: str, settings: dict) -> dict:
    """Return what Docker's client sends for the option UNMASKED, which Docker's API does not have."""
    unmasked = role == "instructor" and UNMASKED in settings["sandbox"]
    return {"MaskedPaths": [], "ReadonlyPaths": []} if unmasked else {}


def ulimits(settings: dict) -> list[dict]:
    """Return the limits that the engine can set, in Docker's format."""
    return [{"Name": limit, "Soft": most, "Hard": most} for limit, most in settings["ulimits"].items()]


def free_gpus(settings: dict, held: Collection[int]) -> list[int]:
    """Return the GPUs for one more lab. Raises NoLab if fewer are free than each lab gets."""
    each = settings["gpus_each"]
    free = [gpu for gpu in settings["gpus"] if gpu not in held]
    if len(free) < each:
        raise NoLab(
            f"All GPUs are in use: a lab needs {each}, and {len(free)} of {len(settings['gpus'])} are free. "
            "Try again when somebody has stopped their lab (File › Hub Control Panel › Stop My Server)."
        )
    return free[:each]


def device_requests(engine: str, gpus: Sequence[int]) -> list[dict]:
    """Return the request for GPUs. Podman's Docker API has CDI devices since version 5.4."""
    if not gpus:
        return []
    if engine == "podman":
        return [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={gpu}" for gpu in gpus]}]
    return [{"DeviceIDs": [str(gpu) for gpu in gpus], "Capabilities": [["gpu"]]}]


def jupyter_settings(hours: float) -> dict:
    """Return settings of labs' Jupyter servers, which end what is idle for `hours`.

    Idle kernels and terminals end first, a busy kernel never. A lab without any ends after another `hours` without use.
    Files stay.
    """
    seconds = int(hours * 3600)
    return {
        "ServerApp": {"shutdown_no_activity_timeout": seconds},
        "MappingKernelManager": {"cull_idle_timeout": seconds, "cull_connected": True, "cull_busy": False},
        "TerminalManager": {"cull_inactive_timeout": seconds},
    }


def numbers(values: Sequence[int]) -> str:
    """Return numbers as the engines write them: 0,1,2."""
    return ",".join(map(str, values))
