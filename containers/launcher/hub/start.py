"""Start the hub of a class, or leave everything as it was: `launch hub --class FILE`."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import shutil
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from containers.launcher.engine import Engine
from containers.launcher.engines import HUB_ENGINES, choose_engine
from containers.launcher.hub import class_list, one_off, podman_service
from containers.launcher.hub.calibration import calibrate
from containers.launcher.hub.settings import HUB, HUB_LABEL, address, plan_settings, print_capacity
from containers.launcher.hub.state import MOUNT, State
from containers.launcher.images import build_image
from containers.launcher.labs import print_access
from containers.launcher.text import notice, shell_command
from course_lib.system.errors import CourseError

INNER_PORT = 8000  # the hub's port in its container
INNER_SOCKET = "/var/run/docker.sock"
LOGIN_FILE = "login.json"  # the operator's: a failed start leaves it
HUB_MEMORY, HUB_PROCESSES = "1g", 1024  # limits: labs must not be able to fill the host's memory through the hub
LOG_SIZE = "10m"  # of the container's log, which the engines do not bound
START_LIMIT_S = 300.0
POLL_INTERVAL_S = 0.5


def start_hub(options: argparse.Namespace) -> None:
    """Start the hub; print its address, and names and passwords of new members."""
    state = State(options.state)
    previous = state.settings()
    engine = choose_engine(options.engine or previous.get("engine"), options.dry_run, HUB_ENGINES)
    ended = [] if engine.dry_run else _ended_hub(engine)
    settings = plan_settings(options, previous, engine, state.folder)
    roles, passwords = _plan_class(options, state, settings["login"])
    with contextlib.ExitStack() as undo:
        _build_missing(engine, settings, roles)
        _open_state(engine, state, settings["images"]["hub"], undo)
        api_socket = engine.api_socket()
        if engine.command == "podman":
            log = state.folder / "podman.log"
            process_id = podman_service.open_service(engine, api_socket, log, undo)
            settings["podman_service"] = process_id or previous.get("podman_service", 0)
        engine.remove_containers(ended)
        _open_network(engine, undo)
        settings["connect"], fixed_address = _hub_address(engine)
        known = previous.get("calibration", "")
        settings["calibration"] = calibrate(engine, settings, state.calibration, known)
        _write_files(engine, state, settings, roles, passwords)
        undo.callback(_undo, engine, "rm", "--force", HUB)
        _create_hub(engine, state.folder, settings, api_socket, fixed_address)
        engine.run("start", HUB)
        if not engine.dry_run:
            _wait_for_hub(engine, settings)
        undo.pop_all()
    if not engine.dry_run:
        _print_result(settings, roles, passwords)


def _ended_hub(engine: Engine) -> list[str]:
    """Return the name of an ended hub's container, if there is one. Raises CourseError (code 2) if the hub runs."""
    hubs = engine.inspect_all(HUB_LABEL)
    if any(hub["State"]["Status"] == "running" for hub in hubs):
        raise CourseError(
            "The hub runs already: `containers/launch hub list` shows its address and its labs; "
            "`containers/launch hub add` adds names, and `containers/launch hub stop` stops it.",
            2,
        )
    if not hubs and engine.query("container", "inspect", HUB).returncode == 0:
        raise CourseError(
            f"{engine.title} has a container {HUB} that the launcher has not made: rename it with "
            f"`{engine.command} rename {HUB} NAME`."
        )
    return [HUB] if hubs else []


def _plan_class(options: argparse.Namespace, state: State, login: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return everyone's role, and new passwords for those who have none. Raises CourseError (code 2) without names.

    A name that the file no longer has stays in the class; `launch hub remove` removes it.
    """
    members = state.members()
    roles = {name: member["role"] for name, member in members.items()}
    if options.class_file:
        listed = class_list.read_names(Path(options.class_file))
        if others := [name for name in roles if name not in listed]:
            notice(
                f"In the class, but not in {options.class_file}: {', '.join(others)}; "
                "`containers/launch hub remove NAME` removes a name."
            )
        roles |= listed
    elif not roles and not login:
        raise CourseError(
            "The hub needs a class: give `--class FILE`, a file with a name on each line, and `instructor` behind "
            "those who teach.",
            2,
        )
    new = [] if login else [name for name in roles if not members.get(name, {}).get("scrypt")]
    return roles, class_list.with_passwords(new)


def _build_missing(engine: Engine, settings: dict, roles: dict[str, str]) -> None:
    """Build the images that the class needs and this host does not have."""
    kind = "gpu" if settings["gpus"] else "cpu"
    for name in ("hub", class_list.LEARNER, class_list.INSTRUCTOR):
        image = settings["images"][name]
        needed = name != class_list.INSTRUCTOR or name in roles.values()
        if needed and not engine.has_image(image):
            role = "" if name == "hub" else name
            build_image(engine, "hub" if name == "hub" else kind, role, image)


def _open_state(engine: Engine, state: State, image: str, undo: contextlib.ExitStack) -> None:
    """Make the state's folder; if the block fails, undo what was written there."""
    if engine.dry_run:
        print(shell_command(["mkdir", "-p", "-m", "700", str(state.folder)]))
    elif state.create():
        undo.callback(remove_state, engine, state, image, keep=LOGIN_FILE)
    else:
        undo.callback(state.restore_files, state.file_contents())


def remove_state(engine: Engine, state: State, image: str, keep: str = "") -> None:
    """Remove the state's folder, including what a hub made there as root, except the file `keep`."""
    if not (kept := (state.folder / keep).is_file()):
        shutil.rmtree(state.folder, ignore_errors=True)
    if state.folder.exists():
        names = [path.name for path in state.folder.iterdir() if path.name != keep]
        one_off.remove(engine, state.folder, image, names)
        if not kept:
            shutil.rmtree(state.folder, ignore_errors=True)


def _open_network(engine: Engine, undo: contextlib.ExitStack) -> None:
    """Make the network of hub and labs, unless labs have outlived the hub on it."""
    if engine.dry_run or engine.query("network", "inspect", HUB).returncode:
        undo.callback(_undo, engine, "network", "rm", HUB)
        engine.run("network", "create", "--label", f"{HUB_LABEL}={HUB}", HUB)


def _hub_address(engine: Engine) -> tuple[str, list[str]]:
    """Return the hub's address for labs, and the options that give it to the hub's container.

    It is a name, or a fixed address: Podman's networks have names only with its name server. No lab gets this address.
    """
    if engine.dry_run or engine.command != "podman":
        return HUB, []
    network = json.loads(engine.answer("network", "inspect", HUB))[0]
    if network.get("dns_enabled"):
        return HUB, []
    fixed = str(ipaddress.ip_network(network["subnets"][0]["subnet"])[-2])
    return fixed, ["--ip", fixed]


def _write_files(
    engine: Engine, state: State, settings: dict, roles: dict[str, str], passwords: dict[str, str]
) -> None:
    """Write settings and class list."""
    if engine.dry_run:
        print(f"# {state.settings_file} gets the settings, {state.class_file} the names with hashes of passwords.")
        return
    state.write_members(class_list.updated(state.members(), roles, passwords))
    state.write_removed(set(state.removed()) - set(roles))
    state.write_settings(settings)


def _create_hub(engine: Engine, folder: Path, settings: dict, api_socket: Path, address_options: list[str]) -> None:
    """Make the hub's container. Access to its socket is access to this host as root, so no user's code runs there."""
    options = ["--name", HUB, "--label", f"{HUB_LABEL}={HUB}", "--network", HUB, *address_options]
    options += ["--restart", "unless-stopped", "--security-opt", "no-new-privileges", *engine.ulimit_options()]
    options += ["--memory", HUB_MEMORY] if "memory" in engine.controllers else []
    options += ["--pids-limit", str(HUB_PROCESSES)] if "pids" in engine.controllers else []
    options += ["--log-driver", "json-file", "--log-opt", f"max-size={LOG_SIZE}"]
    options += ["--publish", f"{settings['bind']}:{settings['port']}:{INNER_PORT}"]
    options += ["--volume", f"{folder}:{MOUNT}", "--volume", f"{api_socket}:{INNER_SOCKET}"]
    engine.run("create", *options, settings["images"]["hub"])


def _wait_for_hub(engine: Engine, settings: dict) -> None:
    """Wait until the hub answers. Raises CourseError, with its last line, if it ends or does not answer in time."""
    deadline = time.monotonic() + START_LIMIT_S
    while not hub_answers(settings):
        descriptions = []
        with contextlib.suppress(CourseError):  # a busy engine that does not answer has ended nothing
            descriptions = engine.inspect_all(HUB_LABEL)
        for hub in descriptions:
            if hub["State"]["Status"] in ("exited", "dead") or hub.get("RestartCount"):
                raise CourseError(f"The hub ended as it started, so it was removed: {engine.log(HUB)}")
        if time.monotonic() > deadline:
            raise CourseError(
                f"The hub did not answer within {START_LIMIT_S / 60:.0f} minutes, so it was removed; its last line: "
                f"{engine.log(HUB)}"
            )
        time.sleep(POLL_INTERVAL_S)


def hub_answers(settings: dict) -> bool:
    """Return whether the hub answers at its port, under the host name that users open."""
    name = "127.0.0.1" if settings["bind"] == "0.0.0.0" else settings["bind"]
    request = urllib.request.Request(f"http://{name}:{settings['port']}/hub/health")
    if settings["domain"]:
        request.add_header("Host", urlsplit(settings["domain"]).netloc)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as answer:
            return answer.status == 200
    except (OSError, ValueError):
        return False


def _undo(engine: Engine, *arguments: str) -> None:
    """Run a command that undoes another one, which may have done nothing."""
    if not engine.dry_run:
        with contextlib.suppress(CourseError):
            engine.run(*arguments)


def _print_result(settings: dict, roles: dict[str, str], passwords: dict[str, str]) -> None:
    users = f", for {class_list.count(roles.values())}" if roles else ""
    print(f"The hub runs at {address(settings)}{users}.")
    if passwords:
        class_list.print_passwords(roles, passwords)
        notice("Only hashes of these passwords are kept: `containers/launch hub add NAME` gives a new one.")
    if settings["data"]:
        notice(f"Labs get the data sets in {settings['data']}; an empty COURSE_DATA_DIR takes them off.")
    else:
        notice("Each lab downloads the data sets: COURSE_DATA_DIR can name a folder for all.")
    print_capacity(settings, len(roles))
    if settings["domain"].startswith("https:"):
        notice(f"A proxy with TLS must lead {settings['domain']} and its subdomains to port {settings['port']}.")
    else:
        print_access(settings["bind"], settings["port"], "The address works")
    if settings["engine"] == "podman":
        notice("After a restart of this host, `containers/launch hub` opens the hub again.")
