"""The command line of `containers/launch`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from containers.launcher import images, labs
from containers.launcher.engine import REPORT
from containers.launcher.engines import ENGINES, HUB_ENGINES
from containers.launcher.hub import backup, commands, settings, start
from containers.launcher.lab import SHARED_MEMORY
from containers.launcher.text import whole_number
from course_lib.system.errors import CourseError

Command = Callable[[argparse.Namespace], None]


class Parser(argparse.ArgumentParser):
    """argparse, with one sentence in place of a usage message."""

    def error(self, message: str) -> NoReturn:
        """Raise CourseError with what argparse says."""
        raise CourseError(f"{message[:1].upper()}{message[1:]}; see `containers/launch --help`.", 2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    try:
        options = build_parser().parse_args(arguments)
        return options.run(options) or 0
    except CourseError as error:
        print(f"launch: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("launch: interrupted.", file=sys.stderr)
        return 130


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = Parser(prog="containers/launch", description="Labs in containers on this host; see containers/README.md.")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="{build,check,lab,list,stop,hub}")
    engine = Parser(add_help=False)
    engine.add_argument("--engine", choices=ENGINES, help="default: the first of them that works")
    dry_run = Parser(add_help=False)
    dry_run.add_argument("--dry-run", action="store_true", help="print the commands, do nothing")
    _add_build(subparsers.add_parser("build", parents=[engine, dry_run], help="build an image"))
    _add_check(
        subparsers.add_parser("check", parents=[engine, dry_run], help="test the GPUs in the image: up to 15 minutes")
    )
    _add_lab(subparsers.add_parser("lab", parents=[engine, dry_run], help="start a lab"))
    one = subparsers.add_parser("list", parents=[engine], help="show the labs and their links")
    one.set_defaults(run=labs.list_labs)
    _add_stop(subparsers.add_parser("stop", parents=[engine, dry_run], help="end labs and remove their containers"))
    _add_hub(subparsers.add_parser("hub", help="a class on JupyterHub: start it, or manage it"))
    return top


def _add_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", nargs="?", choices=("cpu", "gpu", "hub"), help="default: gpu on a host with GPUs")
    parser.add_argument("--instructor", action="store_true", help="with masters, solutions and the grader's reference")
    parser.add_argument("--base", default="", help="another base image; default: NVIDIA's for this host's GPUs")
    parser.add_argument("--image", help="another name for the image")
    parser.set_defaults(run=images.build)


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", default="all", metavar="0,1|all", help="default: all, so that no lab may hold any")
    parser.add_argument("--report", default=".", metavar="FOLDER", help=f"for {REPORT}.html and .json; default: here")
    parser.add_argument("--instructor", action="store_true", help="in the instructor's image: the assessment too")
    parser.add_argument("--image", help="another image")
    parser.add_argument("--shm-size", type=_memory_size, default=SHARED_MEMORY, metavar="SIZE", help="default: 1g")
    parser.set_defaults(run=images.check)


def _add_lab(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="0,1|all|none", help="default: all that no lab holds; none on a host without")
    parser.add_argument("--port", type=_port, help="default: a free one from 8888 on")
    parser.add_argument("--volume", default="course", metavar="NAME", help="the workspace, and the lab's name: course")
    parser.add_argument("--instructor", action="store_true", help="the instructor's image, with a sandbox for scripts")
    parser.add_argument("--image", help="another image")
    parser.add_argument("--bind", default="127.0.0.1", metavar="ADDRESS", help="0.0.0.0: reachable from other hosts")
    parser.add_argument("--shm-size", type=_memory_size, default=SHARED_MEMORY, metavar="SIZE", help="default: 1g")
    parser.set_defaults(run=labs.start_lab)


def _add_stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all labs")
    parser.add_argument(
        "--remove-volumes", action="store_true", help="remove the workspaces too, with all work in them"
    )
    parser.add_argument("--all", action="store_true", help="with --remove-volumes: of every lab, stopped ones too")
    parser.set_defaults(run=labs.stop_labs)


def _port(text: str) -> int:
    return whole_number(text, "--port", "a port is a number from 1 to 65535", 1, 65535)


def _memory_size(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*[kmg]b?", text.lower()):
        raise CourseError(f"--shm-size {text} is not valid: give a size as 512m or 2g.", 2)
    return text


def _add_hub(parser: argparse.ArgumentParser) -> None:
    """Add the options of `launch hub`, which starts the hub, and the commands that manage it."""
    _add_common(parser, None, False)
    parser.add_argument("--class", dest="class_file", metavar="FILE", help="a line each: `name`, `name instructor`")
    parser.add_argument(
        "--hours", type=settings.hours, metavar="H", help="idle kernels end after H hours, then the lab; default: 1"
    )
    parser.add_argument("--gpus-each", type=_gpus_each, metavar="N", help="GPUs for each lab; default: 0")
    parser.add_argument("--port", type=_port, help="default: 8000")
    parser.add_argument("--bind", metavar="ADDRESS", help="0.0.0.0: reachable from other hosts; default: 127.0.0.1")
    parser.add_argument("--domain", metavar="NAME", help="NAME and *.NAME lead to this host: a host name for each user")
    parser.add_argument("--login", type=settings.login, metavar="NAME", help="another login than the class list")
    parser.set_defaults(run=start.start_hub)
    actions = parser.add_subparsers(dest="action", metavar="{stop,list,add,remove,backup,restore}")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=text)
        _add_common(action, argparse.SUPPRESS, argparse.SUPPRESS)
        action.set_defaults(run=_refuse_dry_run(run, name) if name in ("list", "add", "remove") else run)
        return action

    one = add("stop", commands.stop_hub, "end the hub and its labs, or single labs; everyone's work stays")
    one.add_argument("names", nargs="*", metavar="NAME", help="whose labs to end; default: the hub and all labs")
    add("list", commands.list_hub, "show the address, the names and their labs")
    one = add("add", commands.add_names, "add names; for those that are there, a new password")
    one.add_argument("names", nargs="+", metavar="NAME")
    one.add_argument("--instructor", action="store_true", help="with the instructor's image and commands")
    one = add("remove", commands.remove_names, "take names off the class, and end their labs")
    one.add_argument("names", nargs="+", metavar="NAME")
    one.add_argument("--delete", action="store_true", help="also their workspaces, submissions and feedback")
    add("backup", backup.backup, "write all that the class has into an archive").add_argument("file", metavar="FILE")
    add("restore", backup.restore, "unpack an archive where no class is").add_argument("file", metavar="FILE")


def _add_common(parser: argparse.ArgumentParser, nothing: object, no: object) -> None:
    """Add the options that `launch hub` and its commands share, with their defaults."""
    parser.add_argument(
        "--state", metavar="DIR", default=nothing, help="the class's folder; default: in ~/.local/share"
    )
    parser.add_argument("--engine", choices=HUB_ENGINES, default=nothing, help="default: the first of them that works")
    parser.add_argument("--dry-run", action="store_true", default=no, help="print the commands, do nothing")


def _refuse_dry_run(run: Command, name: str) -> Command:
    """Return a command that refuses `--dry-run`, because it does more than call an engine."""

    def run_or_refuse(options: argparse.Namespace) -> None:
        if options.dry_run:
            raise CourseError(f"--dry-run does not go with `hub {name}`: leave it out.", 2)
        run(options)

    return run_or_refuse


def _gpus_each(text: str) -> int:
    return whole_number(text, "--gpus-each", "give the number of GPUs for each lab, 0 or more")
