"""The images: built with buildah on a Debian root, used with podman, and searched for answers."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from course_lib.authoring import masters, released
from course_lib.command.classroom import handout
from course_lib.ranks import environment
from course_lib.system import paths
from course_lib.system.errors import CourseError

if TYPE_CHECKING:
    from conftest import Debian, Engine
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONTAINERS = paths.ROOT / "containers"
DOCKERFILES = {name: (CONTAINERS / f"{name}.Dockerfile").read_text() for name in ("cpu", "gpu")}
DEFINITION = (CONTAINERS / "apptainer.def").read_text()
COMPILERS = ("gcc", "g++", "cc", "cmake", "ninja", "make")
LIBRARY = ("course/course_lib/", "course/labs/", "course/assessment/course_grader/")  # in an image
BASE = "localhost/empty-debian"  # that conftest.py makes, in place of debian:bookworm-slim
TOKEN = "a-token-of-sixteen-or-more"
PATIENCE = 1500  # seconds for a build on a busy machine that has to compile Horovod too


# --- what needs no engine -----------------------------------------------------------------------------------


def imported(*modules: str) -> set[str]:
    """The files of the project that these modules of it import, themselves included; paths from its root."""
    found, left = set(), list(modules)
    while left:
        parts = left.pop().split(".")
        path = "/".join(parts) + ".py"
        if path in found or not (paths.ROOT / path).exists():
            continue
        found |= {path, *("/".join([*parts[:count], "__init__.py"]) for count in range(1, len(parts)))}
        for node in ast.walk(ast.parse((paths.ROOT / path).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("course_lib"):
                left += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


@pytest.mark.parametrize("name", DOCKERFILES)
def test_the_stage_that_sets_up_gets_the_files_that_the_set_up_needs(name):
    """A change of the others makes no new environment."""
    copied = re.findall(r"^COPY (course_lib\S*) ", DOCKERFILES[name], re.MULTILINE)
    setup = "course_lib.command.setup"
    for path in imported(f"{setup}.bootstrap", f"{setup}.install"):
        assert path in copied or str(Path(path).parent) in copied, path
    assert set(copied) == {
        *("course_lib/__init__.py", "course_lib/system", "course_lib/command/__init__.py", "course_lib/command/setup"),
    }


@pytest.mark.parametrize("name", DOCKERFILES)
def test_no_layer_of_the_learners_image_ever_held_an_answer(name):
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", DOCKERFILES[name], re.MULTILINE | re.DOTALL))
    bases = {stage: base for base, stage in re.findall(r"^FROM (\S+) AS (\w+)$", DOCKERFILES[name], re.MULTILINE)}
    assert "COPY . " in stages["project"]
    stage, copies = "learner", []
    while stage in stages:
        copies += re.findall(r"^(?:COPY|ADD) (.+)$", stages[stage], re.MULTILINE)
        stage = bases[stage]
    assert copies == [
        "--from=project /learner /course",
        "--from=environment /course/.venv /course/.venv",
        "containers/image/course-start containers/image/course-health /usr/local/bin/",
    ]


def test_versions_and_bases_agree():
    version = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]["version"]
    for text in (*DOCKERFILES.values(), DEFINITION):
        assert re.search(r"org\.opencontainers\.image\.version[ =]\"?([^\s\"]+)", text).group(1) == version
    (base,) = re.findall(r"^ARG BASE=(\S+)", DOCKERFILES["gpu"], re.MULTILINE)
    assert f"    BASE={base}\n" in DEFINITION


def test_in_images_for_gpus_every_process_leaves_memory_to_others():
    growth = "TF_FORCE_GPU_ALLOW_GROWTH"
    setting = f"{growth}={environment.TENSORFLOW[growth]}"
    runtime = re.search(r"^ENV PATH=(?:.*\\\n)*.*$", DOCKERFILES["gpu"], re.MULTILINE).group(0)
    assert setting in runtime.split() and growth not in DOCKERFILES["cpu"]
    exported = re.findall(r'echo "export (.+)" >> \$APPTAINER_ENVIRONMENT', DEFINITION)
    assert [setting in variables.split() for variables in exported] == [False, True]


def test_the_definition_names_what_dockers_context_has():
    allowed = re.findall(r"^!(\S+)$", (paths.ROOT / ".dockerignore").read_text(), re.MULTILINE)
    context = {path.name for pattern in allowed for path in paths.ROOT.glob(pattern)}
    section = re.search(r"^%files\n(.*?)^%", DEFINITION, re.MULTILINE | re.DOTALL).group(1)
    files = [line.split() for line in section.splitlines() if line.strip()]
    assert {source for source, _ in files} == context
    assert all(target == f"/project/{source}" for source, target in files)


def test_the_scripts_are_shell_scripts(tmp_path):
    post = re.search(r"^%post\n(.*?)^%", DEFINITION, re.MULTILINE | re.DOTALL).group(1)
    (tmp_path / "post").write_text(post.replace("{{ BASE }}", "debian").replace("{{ TARGET }}", "learner"))
    scripts = [path for path in (CONTAINERS / "image").iterdir() if not path.suffix]
    for script in (*scripts, tmp_path / "post"):
        shell = "bash" if "bash" in script.read_text().splitlines()[0] else "sh"
        subprocess.run([shell, "-n", str(script)], check=True)


def test_a_learners_course_fills_the_same_workspace(tmp_path):
    handout.hand_out(tmp_path / "course")
    assert released.course_files(tmp_path / "course") == released.course_files()
    given = {path.name for path in (tmp_path / "course").iterdir()}
    assert given == {"assessment", "course_lib", "labs", released.HANDOUT}
    assert [path.name for path in (tmp_path / "course" / "assessment").iterdir()] == ["course_grader", "contract.toml"]
    with pytest.raises(CourseError, match="already exists"):
        handout.hand_out(tmp_path / "course")


# --- the images ---------------------------------------------------------------------------------------------


class Builder:
    """Builds images with buildah, and runs them with podman."""

    def __init__(self, engine: Engine, debian: Debian) -> None:
        self.engine = engine
        engine.make_base(debian)

    def buildah(self, *arguments: str, timeout: float = 300) -> str:
        return self.engine.buildah(*arguments, timeout=timeout)

    def podman(self, *arguments: str) -> subprocess.CompletedProcess:
        return self.engine.run("podman", *arguments)

    def build(self, target: str) -> str:
        """Build a target of cpu.Dockerfile; return the image's name. Wheels of Horovod are this host's."""
        wheels = paths.cache() / "wheels"
        wheels.mkdir(parents=True, exist_ok=True)
        name = f"one-model-many-gpus:cpu-{target}"
        self.buildah(
            *("build", "--isolation", "chroot", "--layers", "--format", "docker"),
            *("-v", f"{wheels}:/root/.cache/one-model-many-gpus/wheels", "--build-arg", f"BASE={BASE}"),
            *("-f", "containers/cpu.Dockerfile", "--target", target, "-t", name, "."),
            timeout=PATIENCE,
        )
        return name

    def files(self, image: str) -> Path:
        """The image's files."""
        return self.engine.seen(self.buildah("mount", self.buildah("from", image)))


@pytest.fixture(scope="module")
def builder(new_engine, debian) -> Builder:
    return Builder(new_engine(), debian)


@pytest.fixture(scope="module")
def learner(builder) -> str:
    return builder.build("learner")


@pytest.fixture(scope="module")
def instructor(builder, learner) -> str:
    return builder.build("instructor")


@pytest.fixture(scope="module")
def root(builder, learner) -> Path:
    """The files of the learner's image."""
    return builder.files(learner)


class Container:
    """A container with the rights that containers/launch gives to learners, on this host's network."""

    def __init__(self, builder: Builder, image: str, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.builder = builder
        limits = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=8192:8192", "--network", "host"]
        rights = ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        data = os.environ.get("COURSE_DATA_DIR")
        options += ("-v", f"{data}:/data:ro", "-e", "COURSE_DATA_DIR=/data") if data else ()
        settings = ["-e", f"JUPYTER_TOKEN={TOKEN}", "-e", f"JUPYTER_PORT={self.port}"]
        done = builder.podman("run", "--detach", *limits, *rights, *settings, *options, image)
        assert done.returncode == 0, done.stderr
        self.id = done.stdout.strip()

    def run(self, *command: str) -> subprocess.CompletedProcess:
        return self.builder.podman("exec", self.id, *command)

    def get(self, path: str, token: str = "", address: str = "127.0.0.1") -> int:
        """The status; 0 where nobody answers."""
        request = urllib.request.Request(f"http://{address}:{self.port}{path}")
        if token:
            request.add_header("Authorization", f"token {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def log(self) -> str:
        done = self.builder.podman("logs", self.id)
        return done.stdout + done.stderr

    def end(self) -> int:
        """Wait for it; its exit code."""
        return int(self.builder.podman("wait", self.id).stdout)


@pytest.fixture(scope="module")
def lab(builder, learner) -> Container:
    """A learner's lab that is open."""
    container = Container(builder, learner)
    deadline = time.monotonic() + 180
    while container.get("/api") != 200:
        assert time.monotonic() < deadline, container.log()
        time.sleep(0.5)
    return container


def texts(root: Path) -> dict[str, str]:
    """What is in an image besides Debian's files and installed packages: path → text."""
    found = {}
    for folder in ("course", "home", "opt", "root", "srv", "tmp", "usr/local", "var/tmp", "workspace"):
        for path in (root / folder).rglob("*"):
            inside = path.relative_to(root)
            if path.is_file() and inside.parts[:2] != ("course", ".venv") and not path.is_symlink():
                found[str(inside)] = path.read_text(errors="replace")
    return found


def telling(text: str) -> list[str]:
    """The lines that say something, without indentation."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if re.search(r"\w{2}", line)]


def passages(master: masters.Master) -> list[list[str]]:
    """Each three lines that follow each other in a solution, a hidden test or an instructor's cell; all of two."""
    regions = [cell.source for cell in master.cells if cell.kind == "instructor"]
    for cell in master.cells:
        regions += re.findall(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n(.*?)### END", cell.source, re.DOTALL)
    several = [lines for lines in map(telling, regions) if len(lines) > 1]
    return [lines[start : start + 3] for lines in several for start in range(max(1, len(lines) - 2))]


@pytest.mark.container
@pytest.mark.slow
@pytest.mark.long
class TestLearner:
    def test_no_answer_is_in_it(self, root):
        found = texts(root)
        assert "course/handout/lab2_horovod/2b_convert_a_script.ipynb" in found
        for path in masters.find():
            master = masters.read(path)
            for name, text in found.items():
                if not name.startswith(LIBRARY):
                    assert masters.leaks(master, [text]) == [], name
                    continue
                # The library has the formulas, and a line or two in common with a solution here and there.
                lines = "\n".join(["", *telling(text), ""])
                assert [three for three in passages(master) if "\n".join(["", *three, ""]) in lines] == [], name

    def test_no_file_of_the_instructors_is_in_it_under_whatever_name(self, root):
        learners = set(released.course_files().values())
        library = {paths.ROOT / "labs" / "__init__.py", *paths.ROOT.glob("labs/*/lessons/*.*")}
        library |= {path for path in (paths.ROOT / "assessment" / "course_grader").rglob("*") if path.is_file()}
        learners |= {path.read_bytes() for path in library}
        kept = {
            path.read_bytes()
            for part in ("labs", "assessment", "tests")
            for path in (paths.ROOT / part).rglob("*")
            if path.is_file() and path.suffix != ".pyc" and path.stat().st_size > 60 and path.name != "contract.toml"
        }
        kept -= learners
        sizes = {len(content) for content in kept}
        assert len(kept) > 100
        for folder, _, names in os.walk(root):
            for path in (Path(folder) / name for name in names):
                if path.is_file() and not path.is_symlink() and path.stat().st_size in sizes:
                    assert path.read_bytes() not in kept, path

    def test_it_has_no_compiler_and_runs_without_rights(self, builder, learner, root):
        for folder in ("usr/bin", "usr/local/bin", "course/.venv/bin"):
            assert {name for name in COMPILERS if (root / folder / name).exists()} == set()
        (about,) = json.loads(builder.podman("image", "inspect", learner).stdout)
        config = about["Config"]
        assert (config["User"], config["WorkingDir"]) == ("learner", "/workspace")
        assert list(config["Volumes"]) == ["/workspace"]
        assert config["Labels"]["org.opencontainers.image.title"] == "One Model, Many GPUs"
        assert "without answers" in config["Labels"]["org.opencontainers.image.description"]
        assert about["HealthCheck" if "HealthCheck" in about else "Healthcheck"]["Test"] == ["CMD", "course-health"]

    def test_it_knows_the_time_zones_of_deadlines(self, root):
        assert (root / "usr/share/zoneinfo/Europe/Berlin").is_file()

    def test_it_can_be_a_worker_of_several_hosts_and_has_no_key_of_a_server(self, root):
        assert list((root / "etc/ssh").glob("ssh_host_*")) == []
        for path in ("usr/sbin/sshd", "usr/local/bin/course-worker", "etc/ssh/mpi-worker.conf"):
            assert (root / path).exists(), path
        assert "Include /etc/ssh/ssh_config.d/*.conf" in (root / "etc/ssh/ssh_config").read_text()
        assert (root / "etc/ssh/ssh_config.d/mpi.conf").read_text().startswith("# How the launcher")

    def test_its_lab_asks_for_the_token_and_has_the_notebooks(self, lab):
        assert lab.get("/api/contents") == 403
        assert lab.get("/api", address="127.0.0.2") == 200, "it must listen on every address of the container"
        assert lab.get("/api/contents/lab2_horovod/2a_meet_the_ranks.ipynb", TOKEN) == 200
        assert f"http://127.0.0.1:{lab.port}/lab/tree/Welcome.md?token={TOKEN}" in lab.log()
        done = lab.run("sh", "-c", "id -u; touch /course/x /course/course_lib/x /course/.venv/x")
        assert (done.stdout, done.stderr.count("Permission denied")) == ("1000\n", 3)

    def test_its_doctor_finds_it_healthy(self, lab):
        done = lab.run("course", "doctor", "--json")
        report = json.loads(done.stdout)
        assert (done.returncode, report["problems"]) == (0, [])
        assert (report["controllers"], report["ranks_agree"]) == (["gloo", "mpi"], True)

    def test_its_health_check_passes(self, lab):
        done = lab.builder.podman("healthcheck", "run", lab.id)
        assert done.returncode == 0, done.stdout + done.stderr

    def test_a_notebook_runs_on_ranks_and_stops_only_at_the_stubs(self, lab):
        """Notebook 2a as learners get it."""
        run = "jupyter nbconvert --to notebook --execute --allow-errors --output /tmp/run.ipynb"
        done = lab.run(
            "sh", "-c", f"COURSE_SLICE=1279 {run} lab2_horovod/2a_meet_the_ranks.ipynb && cat /tmp/run.ipynb"
        )
        assert done.returncode == 0, done.stderr[-3000:]
        cells = [cell for cell in json.loads(done.stdout)["cells"] if cell["cell_type"] == "code"]
        outputs = [output for cell in cells for output in cell["outputs"]]
        errors = {output["ename"] for output in outputs if output["output_type"] == "error"}
        assert errors == {"NotImplementedError"}
        assert all(cell["execution_count"] for cell in cells)
        (ranks,) = [cell["outputs"] for cell in cells if "launch.call(who" in "".join(cell["source"])]
        assert "local rank" in json.dumps(ranks)

    def test_stopping_it_closes_the_lab(self, lab):
        """The last test of this lab."""
        assert lab.builder.podman("stop", "--time", "60", lab.id).returncode == 0
        assert lab.end() == 0
        assert "The lab is closed." in lab.log()
        assert lab.get("/api") == 0

    def test_no_lab_where_the_workspace_cannot_be_written(self, builder, learner, tmp_path):
        container = Container(builder, learner, "-v", f"{tmp_path}:/workspace")
        assert container.end() == 1
        assert container.log() == (
            "course: /workspace cannot be written by user 1000: mount a volume there, or a folder of that user.\n"
        )

    def test_no_lab_where_the_check_at_the_start_finds_horovod_broken(self, builder, learner, root):
        """As the GPU image checks itself."""
        (module,) = (root / "course").glob(".venv/lib/python3*/site-packages/horovod/tensorflow/mpi_ops.py")
        container = Container(
            builder, learner, "-e", "COURSE_CHECK=1", "-v", f"/dev/null:/{module.relative_to(root)}:ro"
        )
        assert container.end() == 1
        assert "Horovod does not work" in container.log()
        assert "The lab is open" not in container.log()


@pytest.mark.container
@pytest.mark.slow
@pytest.mark.long
class TestInstructor:
    def test_it_has_the_whole_project_and_nothing_of_this_host(self, builder, instructor, debian, tmp_path):
        root = builder.files(instructor) / "course"
        debian.copy_project(tmp_path)
        for part in ("assessment", "containers", "course_lib", "labs", "tests", "README.md"):
            for path in [tmp_path / part, *(tmp_path / part).rglob("*")]:
                assert (root / path.relative_to(tmp_path)).exists(), path
        beside = {path.name for path in root.iterdir()} - {path.name for path in tmp_path.iterdir()}
        assert beside == {".venv"}

    def test_the_reference_on_two_ranks_agrees_bit_for_bit(self, builder, instructor):
        """In the sandbox, whose bubblewrap needs the engine's leave."""
        allowed = ("--security-opt", "seccomp=unconfined", "--security-opt", "unmask=ALL")
        container = Container(builder, instructor, *allowed, "--entrypoint", '["sleep", "infinity"]')
        done = container.run(
            "sh", "-c", "course assess /course/assessment/reference/assessment.py --profile short --json /tmp/outcome"
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        assert "No sandbox" not in done.stdout
        outcome = json.loads(container.run("cat", "/tmp/outcome").stdout)
        criteria = {criterion["id"]: criterion for criterion in outcome["criteria"]}
        assert outcome["ranks"] == 2
        for name in ("ranks", "averaged", "broadcast", "data"):
            assert criteria[name]["passed"], criteria[name]["reason"]
        assert container.run("course", "build", "--check").returncode == 0
