"""`./course` in a project whose set-up is complete: which Python, what reaches the command, what is said otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.command.setup import bootstrap, install, plan
from course_lib.system import paths
from course_lib.system.errors import CourseError


@pytest.fixture
def project(tmp_path):
    """A copy of what `./course` needs, with a `course` command that prints what it is called with."""
    root = tmp_path / "the project"
    root.mkdir()
    for name in ("course", "pyproject.toml", *(path.name for path in paths.ROOT.glob("requirements*.lock"))):
        shutil.copy(paths.ROOT / name, root / name)
    for package in ("system", "command/setup"):
        shutil.copytree(paths.ROOT / "course_lib" / package, root / "course_lib" / package)
    for package in ("", "command"):
        shutil.copy(paths.ROOT / "course_lib" / package / "__init__.py", root / "course_lib" / package)
    command = root / ".venv" / "bin" / "course"
    command.parent.mkdir(parents=True)
    shim(command.parent, "course", 'echo "in $PWD"\nprintf "<%s>" "$@"')
    return root


@pytest.fixture
def folder(tmp_path):
    """A folder to stand for PATH, with what a shell script needs and nothing else."""
    path = tmp_path / "bin"
    path.mkdir()
    for tool in ("sh", "dirname", "readlink"):
        (path / tool).symlink_to(shutil.which(tool))
    return path


def complete(root: Path, path: Path) -> None:
    """Note the set-up of `root` as completed for this machine as it looks with the PATH `path`."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from course_lib.command.setup import plan; "
        "plan.write_notes(plan.wanted(plan.detect()))"
    )
    subprocess.run([sys.executable, "-ISc", code, str(root)], env={"PATH": str(path)}, check=True)


def start(root: Path, path: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    env = {"PATH": str(path), "HOME": str(root.parent), "XDG_CACHE_HOME": str(root.parent / "cache")}
    env["COURSE_TENSORFLOW"] = os.environ.get("COURSE_TENSORFLOW", "")
    return subprocess.run([str(root / "course"), *arguments], capture_output=True, text=True, env=env, cwd=cwd)


def refused(done: subprocess.CompletedProcess) -> str:
    """The one sentence, the last, on standard error."""
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("course: ")
    return last


def shim(path: Path, name: str, body: str = "exit 127") -> None:
    (path / name).write_text(f"#!/bin/sh\n{body}\n")
    (path / name).chmod(0o755)


def newer_python(path: Path, name: str = "python3") -> None:
    """A Python that says it is 3.12."""
    lie = f"import sys; sys.version_info = (3, 12, 1, 'final', 0); sys.executable = '{path / name}'"
    shim(
        path,
        name,
        f"""case "$1" in
-ISc) exec {sys.executable} -ISc "{lie}; $2" ;;
-IS) shift; exec {sys.executable} -ISc "{lie}; import runpy; sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')" "$@" ;;
-Im | -Ic) exit 1 ;;
esac""",
    )


@pytest.mark.parametrize(
    ("arguments", "received"),
    [(["run", "my script.py", "", "--", "*"], "<run><my script.py><><--><*>"), ([], "<--help>")],
)
def test_arguments_and_folder_reach_the_command_unchanged(project, folder, tmp_path, arguments, received):
    (folder / "python3").symlink_to(sys.executable)
    complete(project, folder)
    done = start(project, folder, *arguments, cwd=tmp_path)
    assert done.stdout == f"in {tmp_path}\n{received}"
    assert (done.returncode, done.stderr) == (0, "")


def test_course_can_be_called_through_a_link(project, folder, tmp_path):
    (folder / "python3").symlink_to(sys.executable)
    complete(project, folder)
    link = tmp_path / "link"
    link.symlink_to(project / "course")
    done = subprocess.run([str(link), "doctor"], capture_output=True, text=True, env={"PATH": str(folder)})
    assert done.stdout.endswith("<doctor>")


def test_shims_that_fail_and_pythons_that_do_not_fit_are_passed_over(project, folder):
    shim(folder, "python3.11")
    newer_python(folder, "python3.10")
    (folder / "python").symlink_to(sys.executable)
    complete(project, folder)
    assert start(project, folder, "lab").stdout.endswith("<lab>")


def test_without_python_one_sentence_says_what_to_install(project, folder):
    shim(folder, "python3")
    assert "`sudo apt install python3 python3-venv g++`" in refused(start(project, folder, "lab"))


def test_with_a_newer_python_alone_and_no_download_the_other_ways_are_named(project, folder):
    newer_python(folder)
    sentence = refused(start(project, folder, "lab"))
    assert "The course needs Python 3.9 to 3.11, but this is Python 3.12.1" in sentence
    assert "conda env create -f environment.yml" in sentence and "container" in sentence


def test_a_given_tensorflow_is_that_of_python3_and_of_no_other(project, folder, monkeypatch):
    shim(folder, "python3.11", "echo the wrong Python; exit 0")
    newer_python(folder)
    monkeypatch.setenv("COURSE_TENSORFLOW", "given")
    sentence = refused(start(project, folder, "lab"))
    assert f"TensorFlow cannot be used in {folder / 'python3'}" in sentence, "Python 3.12 is no problem there"


def test_a_cache_that_cannot_be_written_is_one_sentence(project, folder, tmp_path):
    (folder / "python3").symlink_to(sys.executable)
    (tmp_path / "cache").write_text("a file where a folder should be")
    for compiler in ("gcc", "g++"):
        shim(folder, compiler)
    assert str(tmp_path / "cache") in refused(start(project, folder, "lab"))


@pytest.mark.parametrize("arguments", [[], ["setup"]])
def test_course_setup_checks_and_says_that_all_is_in_place(arguments, monkeypatch, capsys):
    checked = []
    monkeypatch.setattr(plan, "read_notes", lambda: plan.wanted(plan.detect()))
    monkeypatch.setattr(install, "set_up", lambda machine, wanted, check: checked.append(check))
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("`course setup` becomes no other command"))
    assert bootstrap.main(arguments) == 0
    assert checked == [True]
    assert "The course is ready" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["setup"]])
def test_in_an_image_nothing_can_be_set_up(tmp_path, monkeypatch, arguments):
    monkeypatch.setattr(plan, "ROOT", tmp_path)  # without the lock files, as a learner's course
    with pytest.raises(CourseError, match="containers/launch build"):
        bootstrap.main(arguments)
