"""Start a lab, list labs, stop them."""

from __future__ import annotations

import argparse
import contextlib
import re
import secrets
import socket
import time
from dataclasses import replace

from containers.launcher import host
from containers.launcher.engine import Engine
from containers.launcher.engines import choose_engine, working_engines
from containers.launcher.images import require_image, role_name
from containers.launcher.lab import TOKEN_COMMAND, Lab
from containers.launcher.text import comma_list, notice, print_table
from course_lib.system.errors import CourseError

FIRST_PORT = 8888
START_LIMIT_S = 600.0  # until a lab must answer; on GPUs it checks itself first
POLL_INTERVAL_S = 0.5


def start_lab(options: argparse.Namespace) -> None:
    """Start a lab and print its link, or leave nothing behind: `launch lab`."""
    engine = choose_engine(options.engine, options.dry_run)
    lab, ended = _plan(options, engine)
    begun: list[Lab] = []
    try:
        engine.stop(ended)
        begun.append(lab)
        try:
            engine.create(lab)
        except CourseError:
            begun.clear()  # the container that has this name is not ours
            raise
        engine.start(lab)
        if engine.dry_run:
            return
        _wait_for(engine, lab)
    except BaseException:
        if not engine.dry_run:
            with contextlib.suppress(CourseError):
                engine.undo(begun)
        raise
    _print_labs([replace(lab, state="running")])
    print_access(lab.address, lab.port, "The link works")
    notice("`containers/launch stop` ends the labs; the workspaces stay.")


def print_access(address: str, port: int, subject: str) -> None:
    """Print how to reach a server that listens at the address and port."""
    if address == "127.0.0.1":
        tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {socket.gethostname()}"
        notice(f"{subject} on this host. From your own computer, first: {tunnel}")
    else:
        notice("Tokens and work travel unencrypted: let nobody in whom you do not trust, or put a TLS proxy in front.")


def _plan(options: argparse.Namespace, engine: Engine) -> tuple[Lab, list[Lab]]:
    """Return the lab to start, and an ended one whose container has its name. Raises CourseError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}", options.volume):
        raise CourseError(f"'{options.volume}' is no name for a volume: use letters, digits, '-', '_' and '.'.", 2)
    data = host.data_folder()
    existing = [] if engine.dry_run else engine.labs()
    running = [lab for lab in existing if lab.running]
    gpus = host.choose_gpus(options.gpus, () if engine.dry_run else engine.held_gpus())
    if options.volume in {lab.name for lab in running}:
        raise CourseError(
            f"A lab runs on the volume {options.volume} already: `containers/launch list` shows its link; choose "
            "another name with --volume, or stop it first.",
            2,
        )
    port = host.choose_port(options.port, options.bind, {lab.port for lab in running}, FIRST_PORT)
    if gpus and (problem := "" if engine.dry_run else engine.gpu_problem()):
        raise CourseError(problem)
    kind = "gpu" if gpus else "cpu"
    image = options.image or engine.image(kind, role_name(options.instructor))
    require_image(engine, image, kind, options)
    lab = Lab(
        name=options.volume,
        image=image,
        port=port,
        address=options.bind,
        gpus=tuple(gpus),
        shared_memory=options.shm_size,
        sandbox=options.instructor,
        data=data,
        token=TOKEN_COMMAND if engine.dry_run else secrets.token_hex(24),
    )
    return lab, [other for other in existing if other.name == lab.name]


def _wait_for(engine: Engine, lab: Lab) -> None:
    """Wait until the lab answers. Raises CourseError, with its last line, if it ends or does not answer in time."""
    deadline = time.monotonic() + START_LIMIT_S
    while not lab.answers():
        running = {lab.name}
        with contextlib.suppress(CourseError):  # a busy engine that does not answer has ended no lab
            running = {other.name for other in engine.labs() if other.running}
        if lab.name not in running:
            raise CourseError(f"The lab {lab.name} ended as it started, so it was removed: {engine.log(lab.name)}")
        if time.monotonic() > deadline:
            raise CourseError(
                f"The lab {lab.name} did not answer within {START_LIMIT_S / 60:.0f} minutes, so it was stopped again; "
                f"its last line: {engine.log(lab.name)}"
            )
        time.sleep(POLL_INTERVAL_S)


def list_labs(options: argparse.Namespace) -> None:
    """Print the labs of all engines: `launch list`."""
    labs = [lab for engine in working_engines(options.engine) for lab in engine.labs()]
    if labs:
        _print_labs(labs)
    else:
        print("There are no labs.")


def _print_labs(labs: list[Lab]) -> None:
    rows = [("LAB", "STATE", "GPUS", "LINK")]
    for lab in labs:
        state = lab.health if lab.health == "unhealthy" else lab.state
        rows.append((lab.name, state, comma_list(lab.gpus) or "none", lab.link if lab.running else ""))
    print_table(rows)


def stop_labs(options: argparse.Namespace) -> None:
    """End labs; with --remove-volumes, also remove the workspaces: `launch stop`."""
    if options.remove_volumes and not (options.names or options.all):
        raise CourseError(
            "--remove-volumes removes all work in a workspace: name the labs, or say --all for every one.", 2
        )
    missing = list(options.names)
    for engine in working_engines(options.engine):
        engine.dry_run = options.dry_run
        labs = [lab for lab in engine.labs() if lab.name in missing or not options.names]
        volumes = engine.volumes() if options.remove_volumes else []
        volumes = [name for name in volumes if name in missing or not options.names]
        engine.stop(labs)
        engine.remove_volumes(volumes)
        missing = [name for name in missing if name not in volumes and name not in {lab.name for lab in labs}]
        if not options.dry_run:
            for lab in labs:
                print(f"Stopped {lab.name}.")
            for name in volumes:
                print(f"Removed the volume {name}.")
    if missing:
        raise CourseError(f"There is no lab {', '.join(missing)}: `containers/launch list` names those that exist.", 2)
