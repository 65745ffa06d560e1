"""Labs on Kubernetes: what z2jh.yaml's hub does when a user's lab starts. The mounts are the same as on one host."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lab_settings

if TYPE_CHECKING:
    from kubespawner import KubeSpawner

STATE = Path("/usr/local/etc/jupyterhub")  # where z2jh.yaml puts class.json
VOLUME = "course"  # of the claim, in a pod
# Kubernetes makes the folders that are mounted as root.
OWN = "chown 1000:1000 /folders/*"
HAND_OUT = "cp -rT --no-preserve=ownership /course/handout /outbound && chmod -R u=rwX,go=rX /outbound"


def configure(c: Any, custom: dict[str, Any]) -> None:
    """Configure KubeSpawner. `custom`: z2jh.yaml's section of that name; its `learner` is the learners' image."""
    c.KubeSpawner.pre_spawn_hook = functools.partial(prepare, custom)


def prepare(custom: dict[str, Any], spawner: KubeSpawner) -> None:
    """Give a lab the mounts and the image of its user's role, which class.json contains."""
    name = spawner.user.name
    role = lab_settings.role_of(name, json.loads((STATE / "class.json").read_text()))
    unconfined = role == "instructor" and custom["sandbox"]
    mounts, before = volume_mounts(name, role, custom), init_containers(name, role, custom)
    theirs = {key: mount for key, mount in dict(spawner.volume_mounts).items() if mount["name"] != VOLUME}
    spawner.volume_mounts = {**theirs, **{mount["mountPath"]: mount for mount in mounts}}
    spawner.init_containers = before
    spawner.image = custom[role]
    if custom["data"]:
        spawner.environment = {**spawner.environment, "COURSE_DATA_DIR": "/data"}
    spawner.container_security_context = security(unconfined)
    if custom["sandbox"]:
        spawner.extra_pod_config = {**spawner.extra_pod_config, "hostUsers": not unconfined}


def security(unconfined: bool) -> dict[str, Any]:
    """Return a lab's rights: none. `unconfined`: bubblewrap works; it needs user namespaces and all of /proc."""
    given = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if unconfined:
        return {**given, "seccompProfile": {"type": "Unconfined"}, "procMount": "Unmasked"}
    return {**given, "seccompProfile": {"type": "RuntimeDefault"}}


def volume_mounts(name: str, role: str, custom: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the mounts of a lab in the claim, which has the folders of one host's state folder.

    Each lab has its own cores and measures their speed itself, so the labs share no calibration.
    """
    settings = {"state": "/", "gpus_each": 1, "data": "/data" if custom["data"] else ""}
    mounts = []
    for line in lab_settings.mounts(name, role, STATE, settings):
        source, target, mode = line.split(":")
        if target.startswith("/etc/"):  # a file that z2jh.yaml itself puts there
            continue
        mounts.append({"name": VOLUME, "mountPath": target, "subPath": source.lstrip("/"), "readOnly": mode == "ro"})
    return mounts


def init_containers(name: str, role: str, custom: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what runs before a lab, as root with two capabilities: it gives the lab's folders to the user.

    Before an instructor's lab, it also hands out the assignments of the learners' image.
    """
    folders = {mount["subPath"] for mount in volume_mounts(name, role, custom)}
    folders -= {"exchange/outbound", "data"} | ({"exchange/inbound"} if role == "instructor" else set())
    containers = [
        _root("own", custom[role], OWN, {f"/folders/{number}": path for number, path in enumerate(sorted(folders))})
    ]
    if role == "instructor":
        containers.append(_root("hand-out", custom["learner"], HAND_OUT, {"/outbound": "exchange/outbound"}))
    return containers


def _root(name: str, image: str, script: str, mounts: dict[str, str]) -> dict[str, Any]:
    capabilities = {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]}
    resources = {"cpu": "100m", "memory": "128Mi"}
    return {
        "name": name,
        "image": image,
        "command": ["sh", "-c", script],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {"runAsUser": 0, "allowPrivilegeEscalation": False, "capabilities": capabilities},
        "volumeMounts": [{"name": VOLUME, "mountPath": path, "subPath": source} for path, source in mounts.items()],
    }
