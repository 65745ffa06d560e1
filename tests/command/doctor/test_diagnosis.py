"""The doctor finds what is wrong with a machine and says it in a sentence with its fix."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.command.doctor import diagnosis, stack
from course_lib.ranks import launch

VERSIONS = {"tensorflow": "2.15.1", "keras": "2.15.0", "horovod": "0.28.1"}
HEALTHY = {**stack.NOTHING, **VERSIONS, "controllers": ["gloo"]}
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
agreement.report(model)

# nobody reduces: what becomes of a DistributedOptimizer in Keras 3
model = agreement.small_model()
model.compile(tf.keras.optimizers.SGD(0.1), loss)
model.fit(x, y, batch_size=16, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
agreement.report(model)

# a plain tape
model = agreement.small_model()
broadcast_variables(model.variables, 0)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
with tf.GradientTape() as tape:
    value = loss(y, model(x))
optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
agreement.report(model)
"""


def script(folder: Path, body: str) -> Path:
    path = folder / "train.py"
    path.write_text(body)
    return path


@pytest.fixture
def machine(monkeypatch):
    """A healthy machine whose report, data and ranks a test can spoil."""
    report = copy.deepcopy(HEALTHY)
    monkeypatch.setattr(diagnosis, "ask_stack", lambda: report)
    monkeypatch.setattr(diagnosis.launch, "gpus", list)
    monkeypatch.setattr(diagnosis.data, "locate", lambda name: "cache")
    monkeypatch.setattr(diagnosis, "disagreement", lambda controller, ranks: "")
    monkeypatch.setattr(diagnosis.bfloat16, "instructions", lambda: None)
    monkeypatch.delenv("COURSE_TENSORFLOW", raising=False)
    return report


def test_a_healthy_machine_has_no_problems(machine):
    report = diagnosis.diagnose()
    assert report.pop("python")
    data = {"fashion_mnist": "cache", "cifar10": "cache"}
    rest = {"controllers": ["gloo"], "gpus": [], "data": data, "ranks_agree": True, "problems": []}
    assert report == {**VERSIONS, **rest, "bfloat16": {"instructions": None, "gain": None}}


def test_gpus_that_are_hidden_from_this_process_are_no_problem(machine, monkeypatch):
    monkeypatch.setattr(diagnosis.launch, "gpus", lambda: [f"GPU {number}" for number in range(8)])
    machine["gpus"] = ["GPU:0"]
    assert "8 NVIDIA GPUs" in " ".join(diagnosis.diagnose()["problems"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert diagnosis.diagnose()["problems"] == []


def test_the_stand_in_is_no_problem_but_is_shown(machine, monkeypatch, capsys):
    monkeypatch.setattr(diagnosis.data, "locate", lambda name: "stand-in")
    report = diagnosis.diagnose()
    diagnosis.show(report)
    assert report["problems"] == []
    assert "stand-in `shapes`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("instructions", "measurement", "gain", "words"),
    [
        ("AVX512-BF16", "print(1.4949)", 1.49, "AVX512-BF16; trains the assessment's network 1.5 times as fast"),
        ("AMX", "import os; os.abort()", None, "AMX; not measured"),
        ("AMX", "import time; time.sleep(600)", None, "AMX; not measured"),
        (None, "print(9.0)", None, "neither AMX nor AVX512-BF16: float32 is faster"),
    ],
)
def test_what_bfloat16_gains_is_shown(machine, monkeypatch, tmp_path, capsys, instructions, measurement, gain, words):
    (tmp_path / "measurement.py").write_text(measurement)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(diagnosis, "TIMEOUT_S", 3)
    monkeypatch.setattr(diagnosis.bfloat16, "__name__", "measurement")
    monkeypatch.setattr(diagnosis.bfloat16, "instructions", lambda: instructions)
    report = diagnosis.diagnose()
    assert report["bfloat16"] == {"instructions": instructions, "gain": gain}
    diagnosis.show(report)
    assert words in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("python", "gpus", "spoilt", "words"),
    [
        ("3.9.18", 0, {}, []),
        ("3.12.3", 0, {"tensorflow": "2.17.0+nv25.2", "keras": "2.17.0"}, []),
        ("3.11.2", 2, {"nccl": "2.18.5", "gpus": ["A100", "A100"]}, []),
        ("3.12.1", 0, {}, ["Python 3.12.1"]),
        ("3.11.2", 0, {"keras": "3.4.1"}, ["Keras 3.4.1", "does not average"]),
        ("3.11.2", 0, {"horovod": "0.28.1", "controllers": []}, ["neither Gloo nor MPI"]),
        ("3.11.2", 0, {"faults": {"TensorFlow": "it is not installed"}}, ["TensorFlow", "it is not installed"]),
        ("3.11.2", 0, {"faults": {"Horovod": "built for TensorFlow 2.14.0"}}, ["Horovod", "TensorFlow 2.14.0"]),
        ("3.11.2", 2, {}, ["2 NVIDIA GPUs"]),
    ],
)
def test_a_wrong_stack_is_named_with_its_fix(python, gpus, spoilt, words):
    problems = diagnosis.stack_problems(python, {**HEALTHY, **spoilt}, gpus)
    assert len(problems) == bool(words)
    for word in [*words, "./course setup"] if words else ():
        assert word in problems[0]


def test_gpus_without_nccl_are_a_problem(machine, monkeypatch):
    machine["gpus"] = ["NVIDIA H100"] * 2
    (sentence,) = diagnosis.diagnose()["problems"]
    assert "without NCCL" in sentence
    assert "`./course setup`" in sentence
    monkeypatch.setenv("COURSE_TENSORFLOW", "given")
    (sentence,) = diagnosis.diagnose()["problems"]
    assert "use another image" in sentence
    machine["nccl"] = "2.18.5"
    assert diagnosis.diagnose()["problems"] == []


def test_there_is_a_rank_for_each_gpu_and_never_less_than_two(machine, monkeypatch):
    asked = []
    monkeypatch.setattr(diagnosis, "disagreement", lambda controller, ranks: asked.append(ranks) or "")
    machine["nccl"] = "2.18.5"
    for gpus in (0, 1, 4):
        machine["gpus"] = ["NVIDIA H100"] * gpus
        diagnosis.diagnose()
    assert asked == [2, 2, 4]


def test_damaged_data_is_a_problem_and_the_rest_is_still_examined(machine, monkeypatch):
    def locate(name: str) -> str:
        if name == "cifar10":
            raise diagnosis.CourseError("/data/batch_1 is cut short: copy it again.")
        return "directory"

    monkeypatch.setattr(diagnosis.data, "locate", locate)
    report = diagnosis.diagnose()
    assert report["problems"] == ["/data/batch_1 is cut short: copy it again."]
    assert report["data"] == {"fashion_mnist": "directory"}
    assert report["ranks_agree"] is True


def test_ranks_do_not_agree_unless_they_do_under_every_controller(machine, monkeypatch):
    machine["controllers"] = ["gloo", "mpi"]
    sentences = {"gloo": "", "mpi": "Under MPI they differ."}
    monkeypatch.setattr(diagnosis, "disagreement", lambda name, ranks: sentences[name])
    report = diagnosis.diagnose()
    assert (report["ranks_agree"], report["problems"]) == (False, ["Under MPI they differ."])
    machine.update(horovod=None, controllers=[], faults={"Horovod": "it is not installed"})
    report = diagnosis.diagnose()
    assert (report["ranks_agree"], len(report["problems"])) == (False, 1)


def test_a_host_that_does_not_know_itself_is_a_problem(machine, monkeypatch):
    def unknown(host: str) -> str:
        raise diagnosis.socket.gaierror("Name or service not known")

    monkeypatch.setattr(diagnosis.socket, "gethostbyname", unknown)
    (sentence,) = diagnosis.diagnose()["problems"]
    assert "localhost" in sentence
    assert "/etc/hosts" in sentence


@pytest.mark.parametrize(
    ("failure", "reports", "ranks", "words"),
    [
        ("", [(2, "0.0")], 2, ""),
        ("", [(4, "0.0")], 4, ""),
        ("", [(2, "1e-09")], 2, "differ by up to 1e-09"),
        ("", [(2, "NaN")], 2, "differ by up to nan"),
        ("", [(1, "0.0")] * 2, 2, "did not find each other"),
        ("", [(2, "0.0")], 4, "4 ranks"),
        ("", [], 2, "did not find each other"),
        ("Stopped at the time limit of 300 s.", [(2, "0.0")], 2, "Stopped at the time limit"),
    ],
)
def test_verdicts(failure, reports, ranks, words):
    lines = [f'agreement {{"size": {size}, "difference": {difference}}}' for size, difference in reports]
    sentence = diagnosis.verdict("mpi", failure, ["a log line", *lines], ranks)
    assert words in sentence and bool(words) == bool(sentence)


@pytest.mark.parametrize(
    ("body", "words"), [("import os; os.abort()", "exit code -6"), ("import time; time.sleep(600)", "did not load")]
)
def test_a_stack_that_crashes_or_hangs_is_a_sentence(tmp_path, monkeypatch, body, words):
    monkeypatch.setattr(diagnosis, "STACK", script(tmp_path, body))
    monkeypatch.setattr(diagnosis, "TIMEOUT_S", 3)
    report = diagnosis.ask_stack()
    assert report["tensorflow"] is None
    (sentence,) = diagnosis.stack_problems("3.11.2", report)
    assert words in sentence


def test_missing_libraries_are_faults_not_tracebacks():
    # -I and -S: without site-packages there is neither TensorFlow nor Horovod
    done = subprocess.run([sys.executable, "-IS", str(diagnosis.STACK)], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report == {**stack.NOTHING, "faults": {"TensorFlow": "it is not installed in this environment"}}


@pytest.mark.slow
def test_the_stack_of_this_environment_is_the_pinned_one():
    stack = diagnosis.ask_stack()
    assert stack["faults"] == {}
    assert stack["tensorflow"].startswith("2.15.")
    assert stack["keras"].startswith("2.15.")
    assert stack["horovod"] == "0.28.1"
    assert "gloo" in stack["controllers"]


@pytest.mark.slow
@pytest.mark.ranks
def test_two_ranks_agree(controller):
    assert diagnosis.disagreement(controller) == ""


@pytest.mark.slow
@pytest.mark.ranks
def test_the_probe_finds_each_way_to_drift_apart(tmp_path):
    with launch.start(script(tmp_path, MISTAKES), ranks=2, controller="gloo", timeout=300) as run:
        lines = [event.data["text"] for event in run if event.kind == "output"]
    reports = [line for line in lines if line.startswith("agreement")]
    assert len(reports) == 3
    for report in reports:
        assert "weights of two ranks differ" in diagnosis.verdict("gloo", "", [report])


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.parametrize(
    ("body", "words"), [("import time; time.sleep(600)", "time limit of 20 s"), ("raise SystemExit(3)", "exit code 3")]
)
def test_ranks_that_do_not_finish_are_a_sentence(tmp_path, monkeypatch, body, words):
    monkeypatch.setattr(diagnosis, "TIMEOUT_S", 20)
    sentence = diagnosis.disagreement("gloo", script(tmp_path, body))
    assert "did not finish" in sentence and words in sentence


def test_a_horovod_built_for_another_tensorflow_is_named_in_plain_words(tmp_path):
    for package in ("tensorflow", "horovod"):
        (tmp_path / package).mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(
        "import sys; __version__ = '2.16.2'\n"
        "class config: list_physical_devices = staticmethod(lambda kind: [])\n"
        "class sysconfig: get_build_info = staticmethod(dict)\n"
        "class keras:\n    class Model: __module__ = 'horovod'\n"
    )
    (tmp_path / "horovod" / "__init__.py").write_text("__version__ = '2.15.0'")
    (tmp_path / "horovod" / "tensorflow.py").write_text(
        "class HorovodVersionMismatchError(ImportError):\n    version, installed_version = '2.16.2', '2.15.1'\n"
        "raise HorovodVersionMismatchError('Framework tensorflow installed with …')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(diagnosis.STACK)], capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout)["faults"] == {"Horovod": "it was built for TensorFlow 2.15.1, not for 2.16.2"}
