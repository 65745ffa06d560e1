"""What is given to a Kubernetes cluster: keys and types that the chart and the MPI Operator know, and labs' mounts."""

from __future__ import annotations

import copy
import importlib
import json
import types

import pytest
import yaml

from containers.hub import passwords
from containers.kubernetes import make_class
from course_lib.system.paths import ROOT

HUB = ROOT / "containers" / "hub"
TEXT = (HUB / "z2jh.yaml").read_text()
VALUES = yaml.safe_load(TEXT)
JOB = yaml.safe_load((ROOT / "containers" / "kubernetes" / "mpijob.yaml").read_text())

# Of the schemas of chart 4.4.0 (values.schema.yaml), of the MPI Operator 0.8.2 (its CRD) and of Kubernetes 1.33, the
# keys that are used here. {"*": x}: any key; [x]: a list of x.
ANY = {"*": object}
QUANTITY = (int, float, str)
RESOURCES = {"requests": {"*": QUANTITY}, "limits": {"*": QUANTITY}}
VOLUME = {
    "name": str,
    "persistentVolumeClaim": {"claimName": str},
    "emptyDir": {"medium": str, "sizeLimit": str},
}
MOUNT = {"name": str, "mountPath": str, "subPath": str, "readOnly": bool}
SECURITY = {
    "runAsUser": int,
    "runAsNonRoot": bool,
    "allowPrivilegeEscalation": bool,
    "capabilities": {"drop": [str], "add": [str]},
    "seccompProfile": {"type": str},
    "procMount": str,
}
CONTAINER = {
    "name": str,
    "image": str,
    "workingDir": str,
    "command": [str],
    "args": [str],
    "env": [{"name": str, "value": str}],
    "readinessProbe": {"tcpSocket": {"port": int}, "periodSeconds": int},
    "resources": RESOURCES,
    "securityContext": SECURITY,
    "volumeMounts": [MOUNT],
}
CHART = {
    "custom": ANY,
    "hub": {
        "config": {"*": ANY},
        "extraFiles": {"*": {"mountPath": str}},
        "extraConfig": {"*": str},
        "networkPolicy": {"enabled": bool},
    },
    "singleuser": {
        "image": {"name": str, "tag": str},
        "cmd": str,
        "defaultUrl": str,
        "startTimeout": int,
        "uid": int,
        "fsGid": type(None),
        "allowPrivilegeEscalation": bool,
        "cpu": {"guarantee": (int, float), "limit": (int, float)},
        "memory": {"guarantee": QUANTITY, "limit": QUANTITY},
        "extraFiles": {"*": {"mountPath": str, "data": ANY}},
        "storage": {"type": str, "extraVolumes": [VOLUME], "extraVolumeMounts": [MOUNT]},
        "networkPolicy": {"enabled": bool, "egressAllowRules": {"cloudMetadataServer": bool, "privateIPs": bool}},
        "cloudMetadata": {"blockWithIptables": bool},
    },
    "cull": {"enabled": bool},
    "scheduling": {"userScheduler": {"enabled": bool}},
    "proxy": {"service": {"type": str}},
}
REPLICA = {
    "replicas": int,
    "restartPolicy": str,
    "template": {"spec": {"containers": [CONTAINER], "volumes": [VOLUME]}},
}
MPI_JOB = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"generateName": str},
    "spec": {
        "slotsPerWorker": int,
        "launcherCreationPolicy": str,
        "sshAuthMountPath": str,
        "runPolicy": {"cleanPodPolicy": str, "backoffLimit": int, "ttlSecondsAfterFinished": int},
        "mpiReplicaSpecs": {"Launcher": REPLICA, "Worker": REPLICA},
    },
}


def problems(value: object, known: object, path: str = "") -> list[str]:
    """Paths of keys that are not known, and of values of another type."""
    if isinstance(known, dict) and isinstance(value, dict):
        found = []
        for key, item in value.items():
            kind = known.get(key, known.get("*"))
            found += [f"{path}.{key}"] if kind is None else problems(item, kind, f"{path}.{key}")
        return found
    if isinstance(known, list) and isinstance(value, list):
        return [one for number, item in enumerate(value) for one in problems(item, known[0], f"{path}.{number}")]
    if isinstance(known, (dict, list)):
        return [path]
    right = isinstance(value, known) and (known is object or known is bool or not isinstance(value, bool))
    return [] if right else [path]


@pytest.mark.parametrize("document, known", [(VALUES, CHART), (JOB, MPI_JOB)], ids=["z2jh", "mpijob"])
def test_all_keys_are_known(document, known):
    assert problems(document, known) == []


@pytest.mark.parametrize(
    "path, value",
    [
        ("singleuser.cpus", 2),
        ("singleuser.cpu.limit", "two"),
        ("singleuser.startTimeout", True),
        ("singleuser.storage.extraVolumes", {}),
        ("hub.extraFiles.class.path", "/"),
    ],
)
def test_a_misspelt_key_or_a_wrong_type_is_a_problem(path, value):
    changed = copy.deepcopy(VALUES)
    *above, last = path.split(".")
    place = changed
    for key in above:
        place = place[key]
    place[last] = value
    assert problems(changed, CHART) == [f".{path}"]


class TestHub:
    def test_the_command_in_its_head_fills_each_file(self):
        files = {path.stem for path in HUB.glob("*.py")}
        for key, entry in VALUES["hub"]["extraFiles"].items():
            name = f"{key}.json" if key == "class" else f"{key}.py"
            assert entry["mountPath"] == f"/usr/local/etc/jupyterhub/{name}"
            source = "class.json" if key == "class" else f"$hub/{name}"
            assert f"--set-file hub.extraFiles.{key}.stringData={source}" in TEXT
            assert key == "class" or key in files
        assert "--version 4.4.0" in TEXT

    def test_nobody_is_an_admin_and_only_the_class_gets_in(self):
        config = VALUES["hub"]["config"]
        assert config["JupyterHub"] == {"admin_access": False, "authenticator_class": "class_list.ClassList"}
        assert not any("admin" in key for key in config["Authenticator"])

    def test_an_idle_lab_ends_as_on_one_host(self, cluster):
        (settings,) = VALUES["singleuser"]["extraFiles"].values()
        assert settings["data"] == cluster.lab_settings.jupyter_settings(hours=1)
        assert settings["mountPath"] in {line.split(":")[1] for line in one_host(cluster, "ada", "learner", False)}

    def test_the_kubelet_can_give_a_lab_cores_of_its_own(self):
        for kind in ("cpu", "memory"):
            assert VALUES["singleuser"][kind]["guarantee"] == VALUES["singleuser"][kind]["limit"]
        assert isinstance(VALUES["singleuser"]["cpu"]["limit"], int)


class TestClassFile:
    @pytest.fixture
    def names(self, tmp_path):
        return tmp_path / "names.txt"

    def make(self, names, capsys):
        make_class.main(names, names.with_name("class.json"))
        rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
        return json.loads(names.with_name("class.json").read_text()), {name: password for name, _, password in rows}

    def test_the_passwords_shown_are_those_that_the_hub_accepts(self, names, capsys):
        names.write_text("ada\ngrace instructor\n")
        members, shown = self.make(names, capsys)
        assert {name: member["role"] for name, member in members.items()} == {"ada": "learner", "grace": "instructor"}
        assert all(passwords.accepts(members, name, password) for name, password in shown.items())
        assert names.with_name("class.json").stat().st_mode & 0o077 == 0

    def test_who_is_known_keeps_the_password_and_who_has_left_is_left_out(self, names, capsys):
        names.write_text("ada\nben\n")
        _, first = self.make(names, capsys)
        names.write_text("ada instructor\ncarl\n")
        members, shown = self.make(names, capsys)
        assert set(members) == {"ada", "carl"} and set(shown) == {"carl"}
        assert members["ada"]["role"] == "instructor" and passwords.accepts(members, "ada", first["ada"])


def one_host(cluster, name, role, data):
    settings = {"state": "/", "gpus_each": 1, "data": "/data" if data else ""}
    return cluster.lab_settings.mounts(name, role, cluster.STATE, settings)


CUSTOM = {**VALUES["custom"], "learner": "learner-image"}


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(HUB))
    module = importlib.import_module("cluster")
    monkeypatch.setattr(module, "STATE", tmp_path)
    return module


@pytest.fixture
def prepared(cluster, tmp_path):
    """prepared(role, custom, spawner): a spawner whose lab is about to start."""

    def prepare(role, custom=CUSTOM, spawner=None):
        (tmp_path / "class.json").write_text(json.dumps({"ada": {"role": role}}))
        spawner = spawner or types.SimpleNamespace(
            user=types.SimpleNamespace(name="ada"),
            volume_mounts={"0-files": {"name": "files", "mountPath": "/etc/x"}},
            extra_pod_config={"priority": 1},
            environment={},
        )
        cluster.prepare(custom, spawner)
        return spawner

    return prepare


class TestLab:
    @pytest.mark.parametrize("role", ["learner", "instructor"])
    @pytest.mark.parametrize("data", [False, True])
    def test_mounts_are_those_of_one_host(self, cluster, prepared, role, data):
        spawner = prepared(role, {**CUSTOM, "data": data})
        assert problems(list(spawner.volume_mounts.values()), [MOUNT]) == []
        here = {
            f"/{mount['subPath']}:{mount['mountPath']}:{'ro' if mount['readOnly'] else 'rw'}"
            for mount in spawner.volume_mounts.values()
            if mount["name"] == "course"
        }
        assert here == {line for line in one_host(cluster, "ada", role, data) if ":/etc/" not in line}
        assert len(here) == 4 + data + (role == "learner")
        assert spawner.volume_mounts["0-files"]["mountPath"] == "/etc/x"  # the chart's own stay
        assert spawner.environment == ({"COURSE_DATA_DIR": "/data"} if data else {})

    def test_who_is_no_instructor_any_more_has_nothing_of_one(self, prepared):
        spawner = prepared("learner", spawner=prepared("instructor"))
        assert vars(spawner) == {**vars(prepared("learner")), "user": spawner.user}

    def test_a_learner_has_no_rights_and_reaches_no_more_as_root(self, prepared):
        spawner = prepared("learner")
        security = spawner.container_security_context
        assert security["capabilities"] == {"drop": ["ALL"]} and security["allowPrivilegeEscalation"] is False
        assert security["seccompProfile"] == {"type": "RuntimeDefault"} and "procMount" not in security
        (before,) = spawner.init_containers
        assert {mount["subPath"] for mount in before["volumeMounts"]} == {
            "workspaces/ada",
            "exchange/inbound/ada",
            "exchange/feedback/ada",
        }

    def test_an_instructors_lab_hands_out_what_learners_have(self, prepared):
        spawner = prepared("instructor")
        own, hand_out = spawner.init_containers
        assert hand_out["image"] == "learner-image" and spawner.image == CUSTOM["instructor"] != "learner-image"
        assert [mount["subPath"] for mount in hand_out["volumeMounts"]] == ["exchange/outbound"]
        assert "exchange/inbound" not in {mount["subPath"] for mount in own["volumeMounts"]}

    def test_init_containers_are_what_kubernetes_knows(self, prepared):
        for role in ("learner", "instructor"):
            assert problems(prepared(role).init_containers, [CONTAINER]) == []
            assert problems(prepared(role).container_security_context, SECURITY) == []

    def test_bubblewrap_is_let_work_only_where_the_operator_says_so(self, prepared):
        sandbox = {**CUSTOM, "sandbox": True}
        assert prepared("instructor").container_security_context["seccompProfile"]["type"] == "RuntimeDefault"
        spawner = prepared("instructor", sandbox)
        assert spawner.container_security_context["seccompProfile"]["type"] == "Unconfined"
        assert spawner.extra_pod_config == {"priority": 1, "hostUsers": False}
        spawner = prepared("learner", sandbox, spawner)
        assert spawner.container_security_context["seccompProfile"]["type"] == "RuntimeDefault"
        assert spawner.extra_pod_config == {"priority": 1, "hostUsers": True}


class TestJob:
    SPEC = JOB["spec"]

    def pod(self, role):
        return self.SPEC["mpiReplicaSpecs"][role]["template"]["spec"]

    def test_it_is_one_of_the_operator(self):
        assert (JOB["apiVersion"], JOB["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
        assert self.SPEC["runPolicy"]["cleanPodPolicy"] in ("None", "Running", "All")
        assert self.SPEC["launcherCreationPolicy"] in ("AtStartup", "WaitForWorkersReady")
        assert self.SPEC["mpiReplicaSpecs"]["Launcher"]["replicas"] == 1

    def test_a_rank_for_each_gpu(self):
        (worker,) = self.pod("Worker")["containers"]
        assert worker["resources"]["limits"]["nvidia.com/gpu"] == self.SPEC["slotsPerWorker"]

    def test_launcher_and_workers_share_image_and_workspace_and_have_no_rights(self):
        (launcher,), (worker,) = (self.pod(role)["containers"] for role in ("Launcher", "Worker"))
        assert launcher["image"] == worker["image"]
        assert launcher["volumeMounts"][0] == worker["volumeMounts"][0]
        for container in (launcher, worker):
            assert container["securityContext"]["runAsUser"] == 1000
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert self.pod("Worker")["volumes"][0] in VALUES["singleuser"]["storage"]["extraVolumes"]

    def test_the_probe_asks_the_port_of_the_image_s_sshd(self):
        (worker,) = self.pod("Worker")["containers"]
        settings = (ROOT / "containers" / "image" / "mpi-worker.conf").read_text().splitlines()
        assert f"Port {worker['readinessProbe']['tcpSocket']['port']}" in settings
