"""The doctor finds what is wrong with a machine and says it in a sentence with its fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.command import doctor
from course_lib.ranks import launch

HEALTHY = {
    "tensorflow": "2.15.1",
    "keras": "2.15.0",
    "horovod": "0.28.1",
    "controllers": ["gloo"],
    "nccl": False,
    "gpus": [],
    "faults": {},
}
# Each trains a model in a way that Horovod accepts without a word and that leaves the ranks apart.
MISTAKES = """
import horovod.tensorflow.keras as hvd, tensorflow as tf
from horovod.tensorflow import broadcast_variables
from course_lib.command.doctor import agreement

hvd.init()
(x, y), loss = agreement.examples(), agreement.loss()

# nobody broadcasts
model = agreement.small_model()
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss)
model.fit(x, y, batch_size=16, verbose=0)
agreement.tell(model)

# nobody reduces: what becomes of a DistributedOptimizer in Keras 3
model = agreement.small_model()
model.compile(tf.keras.optimizers.SGD(0.1), loss)
model.fit(x, y, batch_size=16, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
agreement.tell(model)

# a plain tape
model = agreement.small_model()
broadcast_variables(model.variables, 0)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
with tf.GradientTape() as tape:
    value = loss(y, model(x))
optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
agreement.tell(model)
"""


def script(folder: Path, body: str) -> Path:
    path = folder / "train.py"
    path.write_text(body)
    return path


@pytest.fixture
def machine(monkeypatch):
    """A healthy machine whose report, data and ranks a test can spoil."""
    stack = json.loads(json.dumps(HEALTHY))
    monkeypatch.setattr(doctor, "ask_stack", lambda: stack)
    monkeypatch.setattr(doctor.launch, "gpus", list)
    monkeypatch.setattr(doctor.data, "locate", lambda name: "cache")
    monkeypatch.setattr(doctor, "disagreement", lambda controller, ranks: "")
    monkeypatch.delenv("COURSE_TENSORFLOW", raising=False)
    return stack


def test_a_healthy_machine_has_no_problems(machine):
    report = doctor.diagnose()
    assert list(report) == [
        "python", "tensorflow", "keras", "horovod", "controllers", "gpus", "data", "ranks_agree", "problems",
    ]  # fmt: skip
    assert report["data"] == {"fashion_mnist": "cache", "cifar10": "cache"}
    assert report["controllers"] == ["gloo"]
    assert report["ranks_agree"] is True
    assert report["problems"] == []


def test_gpus_that_are_hidden_from_this_process_are_no_problem(machine, monkeypatch):
    monkeypatch.setattr(doctor.launch, "gpus", lambda: [f"GPU {number}" for number in range(8)])
    machine["gpus"] = ["GPU:0"]
    assert "8 NVIDIA GPUs" in " ".join(doctor.diagnose()["problems"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert doctor.diagnose()["problems"] == []


def test_the_stand_in_is_no_problem_but_is_shown(machine, monkeypatch, capsys):
    monkeypatch.setattr(doctor.data, "locate", lambda name: "stand-in")
    report = doctor.diagnose()
    doctor.show(report)
    assert report["problems"] == []
    assert "stand-in `shapes`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        ({"keras": "3.4.1"}, ["Keras 3.4.1", "never averages"]),
        ({"horovod": "0.28.1", "controllers": []}, ["neither Gloo nor MPI"]),
        ({"faults": {"TensorFlow": "it is not installed"}}, ["TensorFlow", "it is not installed"]),
        ({"faults": {"Horovod": "built for TensorFlow 2.14.0"}}, ["Horovod", "built for TensorFlow 2.14.0"]),
    ],
)
def test_a_wrong_stack_is_named_with_its_fix(spoilt, words):
    (sentence,) = doctor.stack_problems("3.11.2", {**HEALTHY, **spoilt})
    for word in [*words, "./course setup"]:
        assert word in sentence


def test_a_python_without_tensorflow_is_named():
    (sentence,) = doctor.stack_problems("3.12.1", HEALTHY)
    assert "Python 3.12.1" in sentence
    assert doctor.stack_problems("3.9.18", HEALTHY) == []
    assert doctor.stack_problems("3.12.3", {**HEALTHY, "tensorflow": "2.17.0+nv25.2", "keras": "2.17.0"}) == []


def test_gpus_without_nccl_are_a_problem(machine, monkeypatch):
    machine["gpus"] = ["NVIDIA H100"] * 2
    (sentence,) = doctor.diagnose()["problems"]
    assert "without NCCL" in sentence
    assert "`./course setup`" in sentence
    monkeypatch.setenv("COURSE_TENSORFLOW", "given")
    (sentence,) = doctor.diagnose()["problems"]
    assert "use another image" in sentence
    machine["nccl"] = True
    assert doctor.diagnose()["problems"] == []


def test_there_is_a_rank_for_each_gpu_and_never_less_than_two(machine, monkeypatch):
    asked = []
    monkeypatch.setattr(doctor, "disagreement", lambda controller, ranks: asked.append(ranks) or "")
    machine["nccl"] = True
    for gpus in (0, 1, 4):
        machine["gpus"] = ["NVIDIA H100"] * gpus
        doctor.diagnose()
    assert asked == [2, 2, 4]
    assert doctor.verdict("gloo", "", ['agreement {"size": 4, "difference": 0.0}'], ranks=4) == ""
    assert "4 ranks" in doctor.verdict("gloo", "", ['agreement {"size": 2, "difference": 0.0}'], ranks=4)


def test_gpus_that_tensorflow_does_not_see_are_a_problem():
    (sentence,) = doctor.stack_problems("3.11.2", HEALTHY, gpus_of_host=2)
    assert "2 NVIDIA GPUs" in sentence
    assert doctor.stack_problems("3.11.2", {**HEALTHY, "nccl": True, "gpus": ["A100", "A100"]}, gpus_of_host=2) == []


def test_damaged_data_is_a_problem_and_the_rest_is_still_examined(machine, monkeypatch):
    def locate(name: str) -> str:
        if name == "cifar10":
            raise doctor.CourseError("/data/batch_1 is cut short: copy it again.")
        return "directory"

    monkeypatch.setattr(doctor.data, "locate", locate)
    report = doctor.diagnose()
    assert report["problems"] == ["/data/batch_1 is cut short: copy it again."]
    assert report["data"] == {"fashion_mnist": "directory"}
    assert report["ranks_agree"] is True


def test_ranks_do_not_agree_unless_they_do_under_every_controller(machine, monkeypatch):
    machine["controllers"] = ["gloo", "mpi"]
    monkeypatch.setattr(doctor, "disagreement", lambda name, ranks: "Under MPI they differ." if name == "mpi" else "")
    report = doctor.diagnose()
    assert report["ranks_agree"] is False
    assert report["problems"] == ["Under MPI they differ."]


def test_a_host_that_does_not_know_itself_is_a_problem(machine, monkeypatch):
    def unknown(host: str) -> str:
        raise doctor.socket.gaierror("Name or service not known")

    monkeypatch.setattr(doctor.socket, "gethostbyname", unknown)
    (sentence,) = doctor.diagnose()["problems"]
    assert "localhost" in sentence
    assert "/etc/hosts" in sentence


def test_ranks_do_not_agree_where_there_is_no_horovod(machine):
    machine.update(horovod=None, controllers=[], faults={"Horovod": "it is not installed"})
    report = doctor.diagnose()
    assert report["ranks_agree"] is False
    assert len(report["problems"]) == 1


def test_verdicts():
    agreed = 'agreement {"size": 2, "difference": 0.0}'
    assert doctor.verdict("gloo", "", ["a log line", agreed]) == ""
    assert "differ by up to 1e-09" in doctor.verdict("gloo", "", [agreed.replace("0.0", "1e-09")])
    assert "differ by up to nan" in doctor.verdict("gloo", "", [agreed.replace("0.0", "NaN")])
    alone = agreed.replace("2", "1")
    assert "do not find each other" in doctor.verdict("mpi", "", [alone, alone])
    assert "do not find each other" in doctor.verdict("mpi", "", [])
    assert "Stopped at the time limit" in doctor.verdict("mpi", "Stopped at the time limit of 300 s.", [agreed])


def test_a_stack_that_crashes_is_a_sentence(tmp_path, monkeypatch):
    crashing = tmp_path / "stack.py"
    crashing.write_text("import os; os.abort()")
    monkeypatch.setattr(doctor, "STACK", crashing)
    stack = doctor.ask_stack()
    assert stack["tensorflow"] is None
    (sentence,) = doctor.stack_problems("3.11.2", stack)
    assert "exit code -6" in sentence


def test_a_stack_that_hangs_is_a_sentence(tmp_path, monkeypatch):
    hanging = tmp_path / "stack.py"
    hanging.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(doctor, "STACK", hanging)
    monkeypatch.setattr(doctor, "TIMEOUT_S", 0.5)
    (sentence,) = doctor.stack_problems("3.11.2", doctor.ask_stack())
    assert "did not load" in sentence


def test_missing_libraries_are_faults_not_tracebacks(tmp_path):
    # -I and -S: without site-packages there is neither TensorFlow nor Horovod
    done = subprocess.run([sys.executable, "-IS", str(doctor.STACK)], capture_output=True, text=True, check=True)
    stack = json.loads(done.stdout)
    assert stack["tensorflow"] is None
    assert stack["faults"] == {"TensorFlow": "it is not installed in this environment"}


@pytest.mark.slow
def test_the_stack_of_this_environment_is_the_pinned_one():
    stack = doctor.ask_stack()
    assert stack["faults"] == {}
    assert stack["tensorflow"].startswith("2.15.")
    assert stack["keras"].startswith("2.15.")
    assert stack["horovod"] == "0.28.1"
    assert "gloo" in stack["controllers"]


@pytest.mark.slow
@pytest.mark.ranks
def test_two_ranks_agree(controller):
    assert doctor.disagreement(controller) == ""


@pytest.mark.slow
@pytest.mark.ranks
def test_the_probe_finds_each_way_to_drift_apart(tmp_path):
    with launch.start(script(tmp_path, MISTAKES), ranks=2, controller="gloo", timeout=300) as run:
        lines = [event.data["text"] for event in run if event.kind == "output"]
    reports = [line for line in lines if line.startswith("agreement")]
    assert len(reports) == 3
    for report in reports:
        assert "weights of two ranks differ" in doctor.verdict("gloo", "", [report])


@pytest.mark.slow
@pytest.mark.ranks
def test_ranks_that_hang_are_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "TIMEOUT_S", 1)
    sentence = doctor.disagreement("gloo", script(tmp_path, "import time; time.sleep(600)"))
    assert "did not finish" in sentence


@pytest.mark.slow
@pytest.mark.ranks
def test_ranks_that_fail_are_a_sentence(tmp_path):
    sentence = doctor.disagreement("gloo", script(tmp_path, "raise SystemExit(3)"))
    assert "did not finish" in sentence
    assert "exit code 3" in sentence


def test_a_horovod_built_for_another_tensorflow_is_told_in_plain_words(tmp_path):
    for package in ("tensorflow", "horovod"):
        (tmp_path / package).mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(
        "import sys; __version__ = '2.16.2'\n"
        "class config: list_physical_devices = staticmethod(lambda kind: [])\n"
        "class keras:\n    class Model: __module__ = 'horovod'\n"
    )
    (tmp_path / "horovod" / "__init__.py").write_text("__version__ = '2.15.0'")
    (tmp_path / "horovod" / "tensorflow.py").write_text(
        "class HorovodVersionMismatchError(ImportError):\n    version, installed_version = '2.16.2', '2.15.1'\n"
        "raise HorovodVersionMismatchError('Framework tensorflow installed with …')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(doctor.STACK)], capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout)["faults"] == {"Horovod": "it was built for TensorFlow 2.15.1, not for 2.16.2"}
