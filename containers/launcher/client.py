"""Run the commands of a container engine, or print them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from containers.launcher.lab import TOKEN_COMMAND
from containers.launcher.text import shell_command
from course_lib.system.errors import CourseError, last_line


class EngineClient:
    """The command-line client of an engine. With `dry_run`, commands that change something are printed only."""

    title, command = "", ""

    def __init__(self, dry_run: bool = False) -> None:
        self.dry_run = dry_run

    def installed(self) -> bool:
        """Return whether the engine's client is on this host."""
        return shutil.which(self.command) is not None

    def query(self, *arguments: str) -> subprocess.CompletedProcess:
        """Run a command that changes nothing, for up to a minute; its exit code is 1 if it did not end."""
        try:
            return subprocess.run([self.command, *arguments], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(arguments, 1, "", str(error))

    def answer(self, *arguments: str) -> str:
        """Return what a query prints. Raises CourseError if it fails without an answer.

        An engine fails, with an answer for the others, if one of several containers has ended meanwhile.
        """
        done = self.query(*arguments)
        if done.returncode and not done.stdout.strip():
            raise self.failure(arguments[0], last_line(done.stderr))
        return done.stdout

    def run(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        shown: bool = False,
        folder: Path | None = None,
    ) -> None:
        """Run a command to its end; `shown`: with its output. Raises CourseError if it fails."""
        environment = environment or {}
        if self.dry_run:
            self._print(arguments, environment, folder)
            return
        pipe = None if shown else subprocess.PIPE
        # In a session of its own: Ctrl-C lets the engine's client end what it has begun, so that it can be undone.
        process = subprocess.Popen(
            [self.command, *arguments],
            env={**os.environ, **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=not shown,
        )
        try:
            out, err = process.communicate()
        except KeyboardInterrupt:
            if shown:
                process.terminate()
            process.communicate()
            raise
        if process.returncode:
            raise self.failure(arguments[0], "the reason stands above" if shown else last_line(err or out))

    def run_attached(self, *arguments: str, environment: Mapping[str, str] | None = None) -> int:
        """Run a command with its output shown; return its exit code."""
        if self.dry_run:
            self._print(arguments, environment or {}, None)
            return 0
        return subprocess.call([self.command, *arguments], env={**os.environ, **(environment or {})})

    def pipe(self, *arguments: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> tuple[int, str]:
        """Run a command between files; return its exit code and the last line of its errors."""
        process = subprocess.Popen(
            [self.command, *arguments],
            stdin=stdin or subprocess.DEVNULL,
            stdout=stdout or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _, errors = process.communicate()
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process.returncode, last_line(errors.decode(errors="replace"))

    def failure(self, action: str, reason: str) -> CourseError:
        """Return the error for an action of the engine that failed."""
        if re.search("could not select device driver|unresolvable CDI|nvidia-container-cli", reason):
            return CourseError(
                f"{self.title} cannot give GPUs to containers ({reason}): install the NVIDIA Container Toolkit, "
                "or leave the GPUs out with --gpus none."
            )
        return CourseError(f"{self.title} failed at `{self.command} {action}` ({reason}); see containers/README.md.")

    def _print(self, arguments: tuple[str, ...], environment: Mapping[str, str], folder: Path | None) -> None:
        variables = [
            f"{name}={value if value == TOKEN_COMMAND else shlex.quote(value)}" for name, value in environment.items()
        ]
        change_folder = [f"cd {shlex.quote(str(folder))} &&"] if folder else []
        print(*change_folder, *variables, shell_command([self.command, *arguments]))
