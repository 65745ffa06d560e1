"""`./course`: which Python, what is done for which machine, what is done again, what is said otherwise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.command.setup import bootstrap, install, plan
from course_lib.command.setup.plan import Machine
from course_lib.system import paths
from course_lib.system.errors import CourseError

LAPTOP = Machine(python="3.11.2", platform="linux_x86_64-glibc2.36")
CLUSTER = LAPTOP._replace(mpi="/opt/openmpi/bin/opal_wrapper")
GPU_HOST = CLUSTER._replace(nvidia=True, nvcc="/usr/local/cuda-12.2/bin/nvcc")


# --- what is done for which machine


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (LAPTOP, ["gloo"]),
        (CLUSTER, ["gloo", "mpi"]),
        (GPU_HOST, ["gloo", "mpi", "nccl"]),
        (GPU_HOST._replace(nvcc=""), ["gloo", "mpi"]),
        (LAPTOP._replace(nvcc="/usr/bin/nvcc"), ["gloo"]),
    ],
)
def test_controllers(machine, expected):
    assert plan.controllers(machine) == expected


def test_the_gpu_host_gets_tensorflow_with_cuda():
    assert plan.lock_file(LAPTOP).name == "requirements.lock"
    assert plan.lock_file(GPU_HOST).name == "requirements-gpu.lock"


def test_a_wheel_is_shared_exactly_by_machines_that_can_share_it():
    keys = [
        plan.wheel_key(machine, tensorflow)
        for machine, tensorflow in [
            (LAPTOP, "2.15.1"),
            (LAPTOP, "2.15.0"),
            (LAPTOP._replace(python="3.10.13"), "2.15.1"),
            (LAPTOP._replace(platform="linux_x86_64-glibc2.31"), "2.15.1"),
            (CLUSTER, "2.15.1"),
            (CLUSTER._replace(mpi="/opt/mpich/bin/mpicxx"), "2.15.1"),
            (GPU_HOST, "2.15.1"),
            (GPU_HOST._replace(nvcc=""), "2.15.1"),
        ]
    ]
    assert len(set(keys)) == len(keys)
    assert plan.wheel_key(LAPTOP._replace(python="3.11.9"), "2.15.1") == keys[0]


def test_horovod_is_compiled_for_what_the_machine_has():
    old = {"PATH": "/usr/bin", "HOROVOD_WITH_PYTORCH": "1", "HOME": "/home/learner01"}
    env = plan.build_environment(LAPTOP, old, jobs=2, nccl=Path("/nccl"))
    assert "HOROVOD_WITH_PYTORCH" not in env
    assert env["HOME"] == "/home/learner01"
    assert env["PATH"].split(":") == [str(plan.VENV / "bin"), "/usr/bin"]
    assert (env["HOROVOD_WITH_GLOO"], env["HOROVOD_WITHOUT_MPI"]) == ("1", "1")
    assert env["CMAKE_BUILD_PARALLEL_LEVEL"] == "2"
    assert env["MAKEFLAGS"]

    env = plan.build_environment(GPU_HOST, old, jobs=2, nccl=Path("/nccl"))
    assert "HOROVOD_WITHOUT_MPI" not in env
    assert env["HOROVOD_WITH_MPI"] == "1"
    assert env["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert env["HOROVOD_CUDA_HOME"] == "/usr/local/cuda-12.2"
    assert env["LDFLAGS"].endswith("-Wl,-rpath,\\$ORIGIN/../../nvidia/nccl/lib"), "no path of one environment"
    assert (env["HOROVOD_NCCL_INCLUDE"], env["HOROVOD_NCCL_LIB"]) == ("/nccl/include", "/nccl/lib")


@pytest.mark.parametrize(
    ("cores", "gibibytes", "jobs"), [(2, 24, 2), (8, 4, 2), (1, 0.9, 1), (64, 512, 64), (4, 7.7, 3)]
)
def test_compilers_fit_into_memory(cores, gibibytes, jobs):
    assert plan.parallel_jobs(cores, gibibytes) == jobs


def test_this_machine_is_looked_at_through_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert plan.look().mpi == ""
    wrapper = tmp_path / "mpicxx.openmpi"
    wrapper.write_text("#!/bin/sh\n")
    (tmp_path / "mpicxx").symlink_to(wrapper)
    assert plan.look().mpi == "", "not executable"
    wrapper.chmod(0o755)
    assert plan.look().mpi == str(wrapper)


@pytest.mark.parametrize(
    ("commands", "modules", "compile_horovod", "words"),
    [
        (["gcc", "g++"], ["venv", "ensurepip"], True, []),
        ([], ["venv", "ensurepip"], False, []),
        (["gcc"], ["venv", "ensurepip"], True, ["C++ compiler", "`sudo apt install g++`"]),
        (["gcc", "g++"], ["venv"], True, ["venv module", "`sudo apt install python3.11-venv`"]),
        ([], [], True, ["`sudo apt install python3.11-venv g++`"]),
    ],
)
def test_what_is_lacking_is_named_with_the_command(commands, modules, compile_horovod, words):
    sentence = plan.lacking(LAPTOP, commands, modules, compile_horovod)
    assert bool(sentence) == bool(words)
    for word in words:
        assert word in sentence


def test_pips_index_and_certificate_hold_for_uv_too():
    config = "global.cert='/etc/ours.pem'\nglobal.index-url='https://packages.example/simple'\n:env:.timeout='9'\n"
    assert plan.package_index(config, {}) == {
        "SSL_CERT_FILE": "/etc/ours.pem",
        "UV_DEFAULT_INDEX": "https://packages.example/simple",
    }
    assert plan.package_index(config, {"SSL_CERT_FILE": "/mine.pem", "UV_DEFAULT_INDEX": "x"}) == {}
    assert plan.package_index("", {}) == {}


def test_descriptions_name_the_controllers():
    assert plan.describe_horovod(LAPTOP) == "Horovod 0.28.1 with Gloo"
    assert plan.describe_horovod(CLUSTER) == "Horovod 0.28.1 with Gloo and MPI"
    assert plan.describe_horovod(GPU_HOST) == "Horovod 0.28.1 with Gloo, MPI and NCCL"
    assert "untested on hardware" in plan.about_gpus(GPU_HOST)
    assert "nvcc" in plan.about_gpus(GPU_HOST._replace(nvcc=""))


# --- what is done again


def test_what_is_done_is_not_done_again():
    wanted = plan.wanted(LAPTOP)
    assert plan.outdated(wanted, wanted) == []


def test_nothing_done_means_everything():
    assert plan.outdated({}, plan.wanted(LAPTOP)) == list(plan.STEPS)


def test_mpi_installed_later_renews_horovod_alone():
    assert plan.outdated(plan.wanted(LAPTOP), plan.wanted(CLUSTER)) == ["horovod"]


def test_another_python_or_tensorflow_renews_everything():
    done = plan.wanted(LAPTOP)
    for machine in (LAPTOP._replace(python="3.11.3"), LAPTOP._replace(nvidia=True)):
        assert plan.outdated(done, plan.wanted(machine)) == list(plan.STEPS)


def test_packages_cut_short_renew_everything():
    wanted = plan.wanted(LAPTOP)
    done = {step: what for step, what in wanted.items() if step != "packages"}
    assert plan.outdated(done, wanted) == list(plan.STEPS)


def test_a_compilation_cut_short_renews_horovod_and_what_follows():
    wanted = plan.wanted(LAPTOP)
    done = {step: wanted[step] for step in ("environment", "packages")}
    assert plan.outdated(done, wanted) == ["horovod", "course"]


# --- the steps, with everything slow replaced


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """The names of the steps taken in a set-up of `tmp_path`. A test may replace any of them."""
    venv = tmp_path / ".venv"
    monkeypatch.setattr(plan, "VENV", venv)
    monkeypatch.setattr(plan, "NOTES", venv / "course-setup.json")
    monkeypatch.setattr(install, "VENV", venv)
    monkeypatch.setattr(install, "require", lambda *_, **__: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    taken = []

    def take(step: str) -> object:
        def taking(*_):
            venv.mkdir(exist_ok=True)
            taken.append(step)

        return taking

    monkeypatch.setattr(install, "_STEP_FUNCTIONS", {step: take(step) for step in plan.STEPS})
    return taken


def test_a_set_up_is_taken_once(steps):
    wanted = plan.wanted(LAPTOP)
    install.set_up(LAPTOP, wanted)
    install.set_up(LAPTOP, wanted)
    assert steps == list(plan.STEPS)
    assert plan.read_notes() == wanted


@pytest.mark.parametrize("error", [KeyboardInterrupt, CourseError("No network.")])
@pytest.mark.parametrize(
    ("at", "then"),
    [("packages", list(plan.STEPS)), ("horovod", ["horovod", "course"]), ("course", ["course"])],
)
def test_an_interrupted_set_up_is_completed_by_the_next(steps, monkeypatch, at, then, error):
    wanted = plan.wanted(LAPTOP)
    whole = dict(install._STEP_FUNCTIONS)

    def stop(*_):
        raise error

    monkeypatch.setitem(install._STEP_FUNCTIONS, at, stop)
    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        install.set_up(LAPTOP, wanted)
    monkeypatch.setattr(install, "_STEP_FUNCTIONS", whole)
    steps.clear()
    install.set_up(LAPTOP, wanted)
    assert steps == then
    assert plan.read_notes() == wanted


def test_a_step_that_is_done_again_and_interrupted_counts_as_not_done(steps, monkeypatch):
    install.set_up(LAPTOP, plan.wanted(LAPTOP))

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(install._STEP_FUNCTIONS, "horovod", stop)
    with pytest.raises(KeyboardInterrupt):
        install.set_up(CLUSTER, plan.wanted(CLUSTER))
    assert "horovod" not in plan.read_notes()


class FakeProgress:
    """Runs nothing; `fails` says which commands fail, `compiles` puts a wheel where the compiler would."""

    log = Path("setup.log")

    def __init__(self, fails: object = lambda command: False) -> None:
        self.commands: list[str] = []
        self.fails = fails

    def run(self, command: list[str], env: object = None) -> None:
        self.commands.append(" ".join(map(str, command)))
        if "--wheel-dir" in command:
            folder = Path(command[command.index("--wheel-dir") + 1])
            folder.mkdir()
            (folder / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl").write_text("compiled")
        if self.fails(self.commands):
            raise install.Failed("It failed.")

    def output(self, command: list[str]) -> str:
        return ""

    def note(self, detail: str) -> None:
        pass

    def step(self, title: str) -> object:
        import contextlib

        return contextlib.nullcontext()

    @property
    def compiled(self) -> int:
        return sum("--wheel-dir" in command for command in self.commands)


@pytest.fixture
def wheels(steps, tmp_path, monkeypatch):
    """The folder in the cache for this machine's wheel."""
    monkeypatch.setattr(install, "_nccl", lambda machine: tmp_path)
    (tmp_path / "cache" / "one-model-many-gpus").mkdir(parents=True)
    return tmp_path / "cache" / "one-model-many-gpus" / "wheels" / "key"


def test_horovod_is_compiled_once(wheels):
    first, second = FakeProgress(), FakeProgress()
    install._install_horovod(LAPTOP, wheels, first)
    install._install_horovod(LAPTOP, wheels, second)
    assert (first.compiled, second.compiled) == (1, 0)
    assert any("horovod-0.28.1" in command for command in second.commands)


def test_a_failed_compilation_leaves_nothing_in_the_cache(wheels):
    with pytest.raises(CourseError):
        install._install_horovod(LAPTOP, wheels, FakeProgress(lambda commands: "--wheel-dir" in commands[-1]))
    assert not wheels.exists()
    assert not list(paths.cache().glob("build-*"))


def test_a_cached_wheel_that_no_longer_loads_is_compiled_again(wheels):
    wheels.mkdir(parents=True)
    (wheels / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl").write_text("old")
    show = FakeProgress(lambda commands: "horovod.tensorflow" in commands[-1] and len(commands) < 4)
    install._install_horovod(LAPTOP, wheels, show)
    assert show.compiled == 1
    assert [wheel.read_text() for wheel in wheels.iterdir()] == ["compiled"]


def test_a_wheel_that_never_loads_is_an_error_and_is_not_kept(wheels):
    with pytest.raises(CourseError, match="does not load"):
        install._install_horovod(LAPTOP, wheels, FakeProgress(lambda commands: "horovod.tensorflow" in commands[-1]))
    assert not wheels.exists()


# --- `./course` itself, in a project whose set-up is complete


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
    command.write_text('#!/bin/sh\necho "in $PWD"\nprintf "<%s>" "$@"\n')
    command.chmod(0o755)
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
        "plan.write_notes(plan.wanted(plan.look()))"
    )
    subprocess.run([sys.executable, "-ISc", code, str(root)], env={"PATH": str(path)}, check=True)


def start(root: Path, path: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    env = {"PATH": str(path), "HOME": str(root.parent), "XDG_CACHE_HOME": str(root.parent / "cache")}
    env["COURSE_TENSORFLOW"] = os.environ.get("COURSE_TENSORFLOW", "")
    return subprocess.run([str(root / "course"), *arguments], capture_output=True, text=True, env=env, cwd=cwd)


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
-Im) exit 1 ;;
esac""",
    )


def test_arguments_and_folder_reach_the_command_unchanged(project, folder, tmp_path):
    (folder / "python3").symlink_to(sys.executable)
    complete(project, folder)
    done = start(project, folder, "run", "my script.py", "", "--", "*", cwd=tmp_path)
    assert done.stdout == f"in {tmp_path}\n<run><my script.py><><--><*>"
    assert (done.returncode, done.stderr) == (0, "")


def test_without_arguments_there_is_help(project, folder):
    (folder / "python3").symlink_to(sys.executable)
    complete(project, folder)
    assert start(project, folder).stdout.endswith("<--help>")


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
    done = start(project, folder, "lab")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "`sudo apt install python3 python3-venv g++`" in done.stderr


def test_with_a_newer_python_alone_and_no_download_the_other_ways_are_named(project, folder):
    newer_python(folder)
    done = start(project, folder, "lab")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("course: The course needs Python 3.9 to 3.11, this is Python 3.12.1")
    assert "conda env create -f environment.yml" in last
    assert "container" in last
    assert "Traceback" not in done.stderr


def test_a_given_tensorflow_is_that_of_python3_and_of_no_other(project, folder, monkeypatch):
    shim(folder, "python3.11", "echo the wrong Python; exit 0")
    newer_python(folder)
    monkeypatch.setenv("COURSE_TENSORFLOW", "given")
    done = start(project, folder, "lab")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "this is Python 3.12.1" not in done.stderr, "Python 3.12 is no problem there"


def test_a_cache_that_cannot_be_written_is_one_sentence(project, folder, tmp_path):
    (folder / "python3").symlink_to(sys.executable)
    (tmp_path / "cache").write_text("a file where a folder should be")
    for compiler in ("gcc", "g++"):
        shim(folder, compiler)
    done = start(project, folder, "lab")
    assert done.returncode == 1
    assert done.stderr.startswith("course: ")
    assert str(tmp_path / "cache") in done.stderr
    assert done.stderr.count("\n") == 1


def test_notes_that_are_not_whole_count_as_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "NOTES", tmp_path / "notes.json")
    assert plan.read_notes() == {}
    (tmp_path / "notes.json").write_text(json.dumps({"environment": "x"})[:-3])
    assert plan.read_notes() == {}


@pytest.mark.parametrize("arguments", [[], ["setup"]])
def test_course_setup_checks_and_says_that_all_is_in_place(arguments, monkeypatch, capsys):
    checked = []
    monkeypatch.setattr(plan, "read_notes", lambda: plan.wanted(plan.look()))
    monkeypatch.setattr(install, "set_up", lambda machine, wanted, check: checked.append(check))
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("`course setup` becomes no other command"))
    assert bootstrap.main(arguments) == 0
    assert checked == [True]
    assert "Everything is in place" in capsys.readouterr().out


@pytest.mark.parametrize(("works", "then"), [(True, []), (False, list(plan.STEPS))])
def test_what_no_longer_works_is_made_anew(steps, monkeypatch, works, then):
    wanted = plan.wanted(LAPTOP)
    install.set_up(LAPTOP, wanted)
    steps.clear()
    monkeypatch.setattr(install, "_works", lambda machine: works)
    install.set_up(LAPTOP, wanted, check=True)
    assert steps == then


def test_a_broken_environment_does_not_work_and_is_no_traceback(steps, tmp_path, monkeypatch):
    monkeypatch.setattr(install, "PYTHON", str(tmp_path / "not there"))
    assert not install._works(LAPTOP)


@pytest.mark.parametrize("arguments", [[], ["setup"]])
def test_in_an_image_nothing_can_be_set_up(tmp_path, monkeypatch, arguments):
    monkeypatch.setattr(plan, "ROOT", tmp_path)  # without the lock files, as a learner's course
    with pytest.raises(CourseError, match="containers/launch build"):
        bootstrap.main(arguments)
