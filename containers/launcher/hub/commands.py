"""Manage the class of a hub: `launch hub stop`, `list`, `add` and `remove`."""

from __future__ import annotations

import argparse
import contextlib

from containers.launcher.engine import Engine
from containers.launcher.engines import HUB_ENGINES, choose_engine
from containers.launcher.hub import class_list, one_off, podman_service
from containers.launcher.hub.settings import HUB, HUB_LAB_LABEL, HUB_LABEL, address
from containers.launcher.hub.state import State
from containers.launcher.images import build_image
from containers.launcher.text import notice, plural, print_table
from course_lib.system.errors import CourseError


def hub_engine(options: argparse.Namespace, state: State) -> Engine:
    """Return the engine with which the hub was started."""
    return choose_engine(options.engine or state.settings().get("engine"), False, HUB_ENGINES)


def stop_hub(options: argparse.Namespace) -> None:
    """End the hub and its labs, or the labs of single users; what users have written stays."""
    state = State(options.state)
    engine = hub_engine(options, state)
    if options.names:
        _stop_labs(engine, options.names, options.dry_run)
        return
    hubs, labs = engine.inspect_all(HUB_LABEL), engine.inspect_all(HUB_LAB_LABEL)
    has_network = engine.query("network", "inspect", HUB).returncode == 0
    engine.dry_run = options.dry_run
    _remove(engine, hubs)  # first, so that it starts no lab again
    _remove(engine, labs)
    if has_network:
        engine.run("network", "rm", HUB)
    if engine.dry_run:
        return
    podman_service.close_service(state.settings().get("podman_service", 0))
    if hubs or labs:
        print(f"Stopped the hub and {plural(len(labs), 'lab')}. Everyone's work stays in {state.folder}.")
    else:
        print("The hub does not run.")


def _stop_labs(engine: Engine, names: list[str], dry_run: bool) -> None:
    """End the labs of these users; the hub goes on. Raises CourseError (code 2), before anything, if one has no lab."""
    labs = {name: engine.inspect_all(f"{HUB_LAB_LABEL}={class_list.require_name(name)}") for name in names}
    if missing := [name for name, theirs in labs.items() if not theirs]:
        raise CourseError(f"There is no lab of {', '.join(missing)}: `launch hub list` shows the labs.", 2)
    engine.dry_run = dry_run
    _remove(engine, [lab for theirs in labs.values() for lab in theirs])
    if not dry_run:
        print(f"Stopped the lab of {', '.join(labs)}.")


def list_hub(options: argparse.Namespace) -> None:
    """Print the hub's address, and who is in the class with the state of their labs."""
    state = State(options.state)
    engine = hub_engine(options, state)
    running = [hub for hub in engine.inspect_all(HUB_LABEL) if hub["State"]["Status"] == "running"]
    settings = state.settings()
    if running and settings:
        print(f"The hub runs at {address(settings)}; a lab that is idle for {settings['hours']:g} h stops.")
    else:
        print("The hub does not run: `containers/launch hub` starts it.")
    labs = {lab["Config"]["Labels"][HUB_LAB_LABEL]: lab["State"] for lab in engine.inspect_all(HUB_LAB_LABEL)}
    roles = {name: member["role"] for name, member in state.members().items()}
    roles |= {name: "" for name in labs if name not in roles}  # those of another login
    rows = [("NAME", "ROLE", "LAB", "SINCE")]
    for name, role in roles.items():
        lab = labs.get(name, {})
        started = lab.get("StartedAt", "")[:16].replace("T", " ")
        rows.append((name, role, lab.get("Status", "none"), started if lab.get("Status") == "running" else ""))
    if len(rows) > 1:
        print_table(rows)


def add_names(options: argparse.Namespace) -> None:
    """Add names to the class, or give existing names a new password, without a restart of the hub.

    A new password ends the user's sessions: the hub ends those in a browser, this command ends the lab.
    """
    state = State(options.state)
    settings = state.settings()
    members = _members(state, settings)
    roles = {class_list.require_name(name): class_list.LEARNER for name in options.names}
    roles |= {name: members[name]["role"] for name in roles if name in members}  # a new password keeps the role
    promoted = [name for name in roles if name in members and roles[name] != class_list.INSTRUCTOR]
    engine = hub_engine(options, state)
    if options.instructor:
        roles = dict.fromkeys(roles, class_list.INSTRUCTOR)
        _build_instructors_image(engine, settings)
    passwords = {} if settings.get("login") else class_list.with_passwords(roles)
    state.write_members(class_list.updated(members, roles, passwords))
    state.write_removed(set(state.removed()) - set(roles))
    if passwords:
        class_list.print_passwords(roles, passwords)
    else:
        print(f"Added {', '.join(roles)}.")
    if not options.instructor:
        promoted = []
    _remove_labs(engine, [name for name in members if name in passwords or name in promoted])
    for name in promoted:
        notice(f"{name} is an instructor now: the lab opens as one when it is started again.")


def _members(state: State, settings: dict) -> dict[str, dict[str, str]]:
    """Return the members. Raises CourseError (code 2) without a class, unless the login has one of its own."""
    return state.members() if settings.get("login") else state.require_members()


def _build_instructors_image(engine: Engine, settings: dict) -> None:
    """Build the image if the hub has been started without instructors."""
    if settings and not engine.has_image(image := settings["images"][class_list.INSTRUCTOR]):
        build_image(engine, "gpu" if settings["gpus"] else "cpu", class_list.INSTRUCTOR, image)


def remove_names(options: argparse.Namespace) -> None:
    """Remove names from the class and end their labs; with --delete, also delete their work."""
    state = State(options.state)
    settings = state.settings()
    members = _members(state, settings)
    names = [class_list.require_name(name) for name in options.names]
    missing = [name for name in names if name not in members]
    if missing and not options.delete and not settings.get("login"):
        raise CourseError(f"There is no {', '.join(missing)} in the class: `launch hub list` shows the names.", 2)
    engine = hub_engine(options, state)
    state.write_members({name: member for name, member in members.items() if name not in names})
    state.write_removed({*state.removed(), *names})
    _remove_labs(engine, names)
    if any(hub["State"]["Status"] == "running" for hub in engine.inspect_all(HUB_LABEL)):
        engine.run("restart", HUB)  # when it starts, it deletes accounts and tokens of removed users; labs continue
        _remove_labs(engine, names)  # one that was opened until then
    print(f"Removed {', '.join(names)} from the class.")
    if options.delete:
        _delete_work(engine, state, names)
    else:
        notice(f"Their work stays in {state.folder}; with --delete it is removed too.")


def _remove_labs(engine: Engine, names: list[str]) -> None:
    _remove(engine, [lab for name in names for lab in engine.inspect_all(f"{HUB_LAB_LABEL}={name}")])


def _delete_work(engine: Engine, state: State, names: list[str]) -> None:
    """Announce the deletion of workspaces, submissions and feedback, and delete them."""
    folders = [
        f"{folder}/{name}" for name in names for folder in ("workspaces", "exchange/inbound", "exchange/feedback")
    ]
    notice(f"Deleting {', '.join(folders)} in {state.folder}; backups and what instructors have collected stay.")
    image = state.settings().get("images", {}).get("hub") or engine.image("hub")
    code, reason = one_off.remove(engine, state.folder, image, folders)
    if code:
        raise CourseError(f"Not everything could be deleted ({reason}): give the command again.")


def _remove(engine: Engine, descriptions: list[dict]) -> None:
    """End and remove containers; one that is already gone is no error."""
    names = [description["Name"].removeprefix("/") for description in descriptions]
    running = [name for name, one in zip(names, descriptions) if one["State"]["Status"] == "running"]
    with contextlib.suppress(CourseError):
        engine.remove_containers((), running)
    engine.remove_containers(names)
