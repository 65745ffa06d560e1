"""Debian roots for tests: unpacked, and told how this host reaches its package index; engines that run containers."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from containers.launcher import docker, host, lab
from containers.launcher.hub import start as hub_start
from course_lib.system import paths
from tests.containers.launching import Fake, pretend

SETTINGS = re.compile(
    r"(PIP_|UV_|SSL_CERT_FILE$|REQUESTS_CA_BUNDLE$|NODE_EXTRA_CA_CERTS$|(https?|no|all)_proxy$)", re.IGNORECASE
)
BASE = "localhost/empty-debian"  # in place of debian:bookworm-slim
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_SETTINGS = (Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf")


class Debian:
    """What an empty Debian 12 is made of."""

    def __init__(self) -> None:
        self.settings = {name: value for name, value in os.environ.items() if SETTINGS.match(name)}

    def unpack(self, folder: Path) -> None:
        """Unpack the smallest Debian 12 into `folder`; the first time, fetch it with debootstrap."""
        kept = paths.cache() / "tests" / "debian-12-minbase.tar"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            include = "--include=ca-certificates"
            subprocess.run(["debootstrap", "--variant=minbase", include, "bookworm", str(folder)], check=True)
            draft = kept.with_suffix(".draft")
            subprocess.run(["tar", "-C", str(folder), "--numeric-owner", "-cf", str(draft), "."], check=True)
            draft.replace(kept)
        else:
            subprocess.run(["tar", "-C", str(folder), "--numeric-owner", "-xpf", str(kept)], check=True)

    def configure(self, root: Path) -> None:
        """Copy how this host reaches its package index: name server, certificates, pip's files.

        And write the one file that Debian's installer writes and debootstrap does not.
        """
        (root / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
        named = [Path(os.environ[name]) for name in ("SSL_CERT_FILE", "PIP_CERT") if name in os.environ]
        for path in {CERTIFICATES, Path("/etc/resolv.conf"), *PIP_SETTINGS, *named}:
            if path.is_file():
                target = root / path.relative_to("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                shutil.copy(path, target)

    def copy_project(self, target: Path) -> None:
        """Copy the files that git tracks or would track."""
        listing = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=paths.ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in filter(None, listing.split("\0")):
            if (paths.ROOT / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(paths.ROOT / name, target / name)


class Engine:
    """buildah and podman with a storage and a mount namespace of their own; `network`: also a network of their own."""

    def __init__(self, folder: Path, network: bool = False) -> None:
        self.folder = folder
        own_networks = f'[network]\nnetwork_config_dir = "{folder}/networks"\n'
        (folder / "containers.conf").write_text(f'[engine]\ncgroup_manager = "cgroupfs"\n{own_networks}')
        storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
        (folder / "storage.conf").write_text(storage)
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("COURSE_")},
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "DISABLE_HC_SYSTEMD": "true",  # health checks are asked for, there is no timer
        }
        namespaces = ["--mount", *["--net"] * network]
        # crun refuses to work where both versions of control groups are mounted; which addresses of a network are
        # taken is not kept with the network.
        own = "mkdir -p /var/lib/cni && mount -t tmpfs tmpfs /var/lib/cni && ip link set lo up && "
        prepare = "umount /sys/fs/cgroup/unified 2>/dev/null; " + own * network
        command = ["unshare", *namespaces, "sh", "-c", f"{prepare} echo ready && exec sleep infinity"]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout.readline() == "ready\n"
        self._namespaces = namespaces
        self.pid = self._holder.pid

    def start(self, *command: str, outside: bool = False) -> subprocess.Popen:
        """Start a command in the namespaces; `outside`: in the network of this host, as builds need it."""
        enter = ["nsenter", *(self._namespaces[:1] if outside else self._namespaces)]
        enter += [f"--wd={paths.ROOT}", "--target", str(self.pid)]
        pipe = subprocess.PIPE
        return subprocess.Popen([*enter, *command], env=self._env, stdout=pipe, stderr=pipe, text=True)

    def run(self, *command: str, timeout: float = 600, outside: bool = False) -> subprocess.CompletedProcess:
        """Run a command in the namespaces to its end."""
        process = self.start(*command, outside=outside)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def buildah(self, *arguments: str, timeout: float = 300) -> str:
        """Run buildah, in the network of this host; return what it prints."""
        done = self.run("buildah", *arguments, timeout=timeout, outside=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout.strip()

    def make_base(self, debian: Debian) -> None:
        """Make the image BASE of an unpacked root; it knows how this host reaches its package index."""
        container = self.buildah("from", "scratch")
        root = self.seen(self.buildah("mount", container))
        debian.unpack(root)
        debian.configure(root)
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **debian.settings}
        self.buildah("config", *(f"--env={name}={value}" for name, value in env.items()), container)
        self.buildah("commit", "--rm", container, BASE)

    def seen(self, path: str | Path) -> Path:
        """A path of the namespaces, whose mounts are seen there alone, as this process reaches it."""
        return Path(f"/proc/{self._holder.pid}/root") / str(path).lstrip("/")

    def close(self) -> None:
        """End the containers and the namespaces."""
        self.run("podman", "rm", "--force", "--all", "--time", "5")
        self._holder.kill()
        self._holder.wait()


@pytest.fixture(scope="module")
def new_engine(debian) -> Iterator[Callable[..., Engine]]:
    """new_engine(network): an engine that is closed, with all its storage, when the module has ended."""
    for tool in ("buildah", "podman", "crun", "unshare", "nsenter", "ip", "iptables"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    engines = []

    def make(network: bool = False) -> Engine:
        engines.append(Engine(Path(tempfile.mkdtemp(prefix="course-images-")), network))
        return engines[-1]

    yield make
    for engine in engines:
        engine.run("buildah", "rm", "--all")
        engine.close()
        assert str(engine.folder) not in Path("/proc/self/mounts").read_text()
        shutil.rmtree(engine.folder)


@pytest.fixture(scope="session")
def debian() -> Debian:
    """Skips where no Debian root can be made."""
    if os.geteuid() != 0:
        pytest.skip("a Debian root needs root's rights")
    for tool in ("debootstrap", "git", "tar"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    return Debian()


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who has set nothing."""
    for name in ("COURSE_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/operator")


@pytest.fixture
def start(operator: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Fake]:
    """start(host, engine, broken): a `Fake` on this host, which has all images of the course; labs and hub answer."""

    def make(name: str = "dgx", engine: str = "docker", broken: dict | None = None) -> Fake:
        fake = Fake(tmp_path, broken, command=engine)
        pretend(monkeypatch, name)
        monkeypatch.setattr(paths, "ROOT", tmp_path / "course")
        (tmp_path / "course" / "build").mkdir(parents=True)
        for image in ("cpu-learner", "cpu-instructor", "gpu-learner", "gpu-instructor"):
            (tmp_path / "course" / "build" / f"{image}.sif").touch()
        monkeypatch.setenv("HOME", str(tmp_path / "operator"))
        monkeypatch.setattr(host, "delegated_controllers", lambda: ("cpuset", "memory", "pids"))
        monkeypatch.setattr(docker.Podman, "gpu_problem", lambda engine: "")
        monkeypatch.setattr(lab.Lab, "answers", lambda lab: True)
        monkeypatch.setattr(hub_start, "hub_answers", lambda settings: True)
        monkeypatch.setenv("PATH", fake.path)
        return fake

    return make
