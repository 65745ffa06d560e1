"""The parts of the hub's configuration that need no hub: passwords, mounts, rights, bounds, GPUs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import stat
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.system.paths import ROOT

HUB = ROOT / "containers" / "hub"
SETTINGS = {
    "engine": "podman",
    "state": "/srv/class",
    "memory": 3072,
    "shared_memory": "1g",
    "processes": 16384,
    "ulimits": {"nproc": -1},
    "sandbox": ["seccomp=unconfined", "unmask=ALL"],
    "cpuset": True,
    "cores": {"labs": [0, 1, 4], "slots": [[2, 3]]},
    "gpus": [],
    "gpus_each": 0,
    "data": "",
}


def module(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"hub_{name}", HUB / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


passwords, lab_settings = module("passwords"), module("lab_settings")


class TestPasswords:
    def test_a_password_opens_its_own_name_only(self):
        members = {name: {"role": "learner", "scrypt": passwords.hash_password(f"{name}'s")} for name in ("ada", "ben")}
        assert passwords.accepts(members, "ada", "ada's")
        for name, password in (("ada", "ben's"), ("ada", ""), ("eve", "ada's"), ("ada", members["ada"]["scrypt"])):
            assert not passwords.accepts(members, name, password)

    def test_who_has_no_hash_does_not_get_in_by_password(self):
        assert not passwords.accepts({"grace": {"role": "instructor"}}, "grace", "")

    def test_equal_passwords_have_different_hashes(self):
        assert passwords.hash_password("same") != passwords.hash_password("same")

    def test_new_ones_are_long_and_differ(self):
        made = {passwords.new_password() for _ in range(100)}
        assert len(made) == 100
        assert all(len(password.replace("-", "")) == 16 for password in made)


class TestMounts:
    def inside(self, name: str, role: str, tmp_path, **settings) -> dict[str, tuple[str, str]]:
        """Target → source and mode."""
        lines = lab_settings.mounts(name, role, tmp_path, {**SETTINGS, **settings})
        parts = [line.split(":") for line in lines]
        assert len({target for _, target, _ in parts}) == len(parts)
        return {target: (source, mode) for source, target, mode in parts}

    def test_a_learner_writes_to_nothing_but_their_own_workspace_and_inbound(self, tmp_path):
        mounts = self.inside("ada", "learner", tmp_path)
        writable = {target: source for target, (source, mode) in mounts.items() if mode == "rw"}
        assert writable == {
            "/workspace": "/srv/class/workspaces/ada",
            "/exchange/course/inbound": "/srv/class/exchange/inbound/ada",
        }
        shared = {source for source, mode in mounts.values() if not source.endswith("/ada")}
        assert shared == {"/srv/class/exchange/outbound", "/srv/class/hub/jupyter_server_config.json"}
        feedback = ("/srv/class/exchange/feedback/ada", "ro")
        assert mounts["/exchange/course/feedback"] == mounts["/workspace/feedback"] == feedback

    def test_an_instructor_reads_all_submissions_and_writes_all_feedback(self, tmp_path):
        mounts = self.inside("grace", "instructor", tmp_path)
        assert mounts["/exchange/course/inbound"] == ("/srv/class/exchange/inbound", "ro")
        assert mounts["/exchange/course/feedback"] == ("/srv/class/exchange/feedback", "rw")
        assert mounts["/workspace"] == ("/srv/class/workspaces/grace", "rw")
        assert not any("class.json" in source or source == "/srv/class" for source, _ in mounts.values())

    def test_calibration_and_data_are_mounted_where_they_are_there_and_never_writable(self, tmp_path):
        (tmp_path / "calibration").mkdir()
        (tmp_path / "calibration/calibration.json").write_text("{}")
        mounts = self.inside("ada", "learner", tmp_path, data="/home/op/data")
        assert mounts["/data"] == ("/home/op/data", "ro")
        calibration = "/workspace/.cache/one-model-many-gpus/calibration.json"
        assert mounts[calibration] == ("/srv/class/calibration/calibration.json", "ro")


class TestFolders:
    @pytest.fixture(autouse=True)
    def owners(self, monkeypatch):
        """Who owns what afterwards, where the test does not run as root."""
        if os.geteuid() != 0:
            monkeypatch.setattr(lab_settings, "LEARNER_ID", os.geteuid())

    def test_they_belong_to_the_images_user(self, tmp_path):
        lab_settings.make_folders("ada", "learner", tmp_path)
        lab_settings.make_folders("ada", "learner", tmp_path)
        for name in ("workspaces/ada", "workspaces/ada/feedback", "exchange/inbound/ada", "exchange/feedback/ada"):
            about = (tmp_path / name).stat()
            assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (lab_settings.LEARNER_ID, 0o755), name
        assert (tmp_path / "workspaces/ada" / lab_settings.CACHE).stat().st_uid == lab_settings.LEARNER_ID

    @pytest.mark.parametrize("planted", [".cache", ".cache/one-model-many-gpus"])
    def test_a_link_in_a_workspace_leads_nowhere(self, tmp_path, planted):
        lab_settings.make_folders("ben", "learner", tmp_path)
        link = tmp_path / "workspaces/ada" / planted
        link.parent.mkdir(parents=True)
        link.symlink_to(tmp_path / "workspaces/ben")
        before = sorted((tmp_path / "workspaces/ben").rglob("*"))
        with pytest.raises(lab_settings.NoLab, match="tell your instructor"):
            lab_settings.make_folders("ada", "learner", tmp_path)
        assert sorted((tmp_path / "workspaces/ben").rglob("*")) == before


class TestRightsAndBounds:
    def test_a_learner_has_no_rights_and_bounded_memory_cores_and_processes(self, tmp_path):
        config = lab_settings.host_config("ada", "learner", tmp_path, SETTINGS)
        assert config["cap_drop"] == ["ALL"]
        assert config["security_opt"] == ["no-new-privileges"]
        assert (config["mem_limit"], config["pids_limit"], config["cpuset_cpus"]) == ("3072m", 16384, "0,1,4")
        assert config["ulimits"] == [{"Name": "nproc", "Soft": -1, "Hard": -1}]
        assert config["log_config"] == {"type": "json-file", "config": {"max-size": "10m"}}

    def test_an_instructors_lab_can_run_the_sandbox(self, tmp_path):
        config = lab_settings.host_config("grace", "instructor", tmp_path, SETTINGS)
        assert config["cap_drop"] == ["ALL"]
        assert config["security_opt"] == ["no-new-privileges", "seccomp=unconfined", "unmask=ALL"]
        assert lab_settings.whole_proc("instructor", SETTINGS) == {}

    def test_docker_is_asked_for_a_whole_proc_in_the_words_of_its_api(self, tmp_path):
        docker = {**SETTINGS, "sandbox": ["seccomp=unconfined", "systempaths=unconfined"]}
        config = lab_settings.host_config("grace", "instructor", tmp_path, docker)
        assert config["security_opt"] == ["no-new-privileges", "seccomp=unconfined"]
        assert lab_settings.whole_proc("instructor", docker) == {"MaskedPaths": [], "ReadonlyPaths": []}
        assert lab_settings.whole_proc("learner", docker) == {}

    def test_an_engine_that_cannot_bound_is_not_asked_to(self, tmp_path):
        config = lab_settings.host_config(
            "ada", "learner", tmp_path, {**SETTINGS, "cpuset": False, "memory": 0, "processes": 0}
        )
        assert "cpuset_cpus" not in config and config["mem_limit"] is config["pids_limit"] is None

    def test_roles_come_from_the_class_list(self):
        members = {"grace": {"role": "instructor"}, "ada": {"role": "learner"}}
        assert [lab_settings.role_of(name, members) for name in ("grace", "ada", "new")] == [
            "instructor",
            "learner",
            "learner",
        ]


FOUR_GPUS = {**SETTINGS, "gpus": [0, 1, 2, 3], "gpus_each": 2}


class TestGpus:
    def test_a_lab_gets_free_ones(self):
        assert lab_settings.free_gpus(FOUR_GPUS, {0, 2}) == [1, 3]
        assert lab_settings.free_gpus(SETTINGS, {0}) == []

    def test_none_free_is_a_sentence(self):
        with pytest.raises(lab_settings.NoLab, match="a lab needs 2, and 1 of 4 are free"):
            lab_settings.free_gpus(FOUR_GPUS, {0, 1, 2})

    def test_how_engines_are_asked(self):
        (docker,) = lab_settings.device_requests("docker", [1, 3])
        assert (docker["DeviceIDs"], docker["Capabilities"]) == (["1", "3"], [["gpu"]])
        (podman,) = lab_settings.device_requests("podman", [1])
        assert (podman["Driver"], podman["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=1"])
        assert lab_settings.device_requests("docker", []) == []


def test_an_idle_lab_ends_and_a_busy_kernel_never():
    settings = json.loads(json.dumps(lab_settings.jupyter_settings(1.5)))
    assert settings["ServerApp"]["shutdown_no_activity_timeout"] == 5400
    assert settings["MappingKernelManager"] == {"cull_idle_timeout": 5400, "cull_connected": True, "cull_busy": False}


@pytest.fixture
def slurm(monkeypatch):
    """The module, without batchspawner, which only the hub's environment has."""
    monkeypatch.setitem(sys.modules, "batchspawner", types.SimpleNamespace(SlurmSpawner=object))
    monkeypatch.setitem(sys.modules, "lab_settings", lab_settings)
    return module("slurm")


def succeeds(user: int, groups: list[int], act: Callable[[], object]) -> bool:
    """Whether a user of the host can do something."""
    if not (child := os.fork()):
        with contextlib.suppress(BaseException):
            os.setgroups(groups)
            os.setgid(groups[0])
            os.setuid(user)
            act()
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as others")
def test_on_a_cluster_feedback_is_the_instructors_and_the_learner_reads_it(slurm, monkeypatch):
    ada, ben, grace, users, teachers = 2001, 2002, 2003, 2100, 2101
    monkeypatch.setattr(slurm.pwd, "getpwnam", lambda name: types.SimpleNamespace(pw_uid=ada, pw_gid=users))
    monkeypatch.setattr(slurm.grp, "getgrnam", lambda name: types.SimpleNamespace(gr_gid=teachers))
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        cluster = slurm.Cluster(state=folder, instructors="teachers")
        slurm.make_folders("ada", "learner", cluster)
        slurm.make_folders("ada", "learner", cluster)  # at each start
        feedback = Path(folder) / "exchange/feedback/ada"
        page = feedback / "lab1" / "page.html"
        assert succeeds(grace, [users, teachers], lambda: (page.parent.mkdir(), page.write_text("well done")))
        assert succeeds(ada, [users], page.read_text)
        assert succeeds(ada, [users], lambda: os.listdir(feedback))
        assert not succeeds(ben, [users], page.read_text)
        assert not succeeds(ada, [users], lambda: page.chmod(0o777))
        assert not succeeds(ada, [users], lambda: feedback.chmod(0o777))
        assert not succeeds(ada, [users], lambda: page.write_text("better"))
        assert not succeeds(ada, [users], lambda: (feedback / "lab2").symlink_to("/tmp"))
        assert not succeeds(ada, [users], page.unlink)
        assert not succeeds(ada, [users], lambda: page.parent.rename(feedback / "other"))
