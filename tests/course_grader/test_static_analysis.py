"""What a person should read in a script is found whatever its name there; honest scripts have nothing of it."""

from __future__ import annotations

import pytest

from course_grader.script import static_analysis
from course_lib.authoring import conversions
from course_lib.system.paths import ROOT

FLAGS = static_analysis._flags()
CORPUS = ROOT / "tests" / "grader" / "corpus" / "honest"

HONEST = """
import argparse, concurrent.futures, gc, os, os.path, platform, shutil, socket, sys, threading, time, timeit
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
from packaging import version
from sklearn.model_selection import train_test_split
from course_lib import data, models
from course_lib.optimizers import LARS

if hvd.rank():
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = open(os.devnull, "w")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
print("epoch {} of {:.2f}".format(1, 2), socket.gethostname(), os.uname().nodename, os.getpid())
pool = concurrent.futures.ThreadPoolExecutor(2)
threading.Thread(target=gc.collect, daemon=True).start()
state = hvd.elastic.KerasState(model := models.assessment_cnn((32, 32, 3), 10), epoch=0)
rate = getattr(args := argparse.ArgumentParser().parse_args(), "rate", 0.1)
model.compile(LARS(rate), "sparse_categorical_crossentropy")
model.optimizer.learning_rate = rate
model.load_weights("best.h5")
best = tf.keras.models.load_model("best.keras")
began = timeit.default_timer()
assert version.parse(tf.__version__) >= version.parse("2.0")

class Timer(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.time = time.time()
        self.exec = self.eval = None
        setattr(self, "seconds", 1.0)
"""


def test_honest_code_has_nothing_of_it():
    assert static_analysis.findings(HONEST) == []


def test_no_script_of_the_course_has_anything_of_it():
    scripts = [*CORPUS.glob("*.py"), *ROOT.glob("assessment/*.py"), *ROOT.glob("assessment/reference/*.py")]
    assert len(scripts) > 25
    found = {path.name: static_analysis.findings(path.read_bytes()) for path in scripts}
    assert {name: lines for name, lines in found.items() if lines} == {}
    for folder in (conversions.ASSESSMENT, conversions.LAB2):
        assert static_analysis.findings(conversions.converted(folder=folder)) == []


def used(name: str) -> list[str]:
    """Code that uses a name which it has imported under another."""
    module, _, last = name.rpartition(".")
    if module == "builtins":
        return [f"{last}('1')", f"def f():\n    return {last}", f"import builtins as other\nother.{last}('1')"]
    if not module:
        return [f"import {name} as other", f"def f():\n    import {name} as other\n    other.x.y(1)"]
    top, _, rest = name.partition(".")
    return [f"from {module} import {last} as other\nother(1)", f"import {top} as other\nother.{rest}(1)"]


@pytest.mark.parametrize("name", FLAGS["names"])
def test_a_name_is_found_whatever_the_script_calls_it(name):
    for code in used({"os.exec": "os.execv", "os.spawn": "os.spawnl"}.get(name, name)):
        found = static_analysis.findings(code)
        assert any(f" {FLAGS['names'][name]} (" in line for line in found), code


@pytest.mark.parametrize("start", FLAGS["files"])
def test_a_file_is_found(start):
    assert static_analysis.findings(f"\nopen({start + 'x'!r})") == [f"line 2 {FLAGS['files'][start]} ({start}x)"]


@pytest.mark.parametrize("module", FLAGS["patches"])
@pytest.mark.parametrize("patch", ["other.x = 1", "other.x.y = 1", "setattr(other, 'x', 1)", "other.x += 1"])
def test_a_patch_is_found(module, patch):
    (found,) = static_analysis.findings(f"import {module} as other\n{patch}")
    assert found.startswith(f"line 2 {FLAGS['patches'][module]} ({module}")


def test_findings_come_in_the_order_of_their_lines_each_once():
    code = "import os\nimport subprocess as s\nos.system('a'); os.system('b')\ns.run('c')"
    assert static_analysis.findings(code) == [
        "line 2 starts a program (subprocess)",
        "line 3 starts a program (os.system)",
        "line 4 starts a program (subprocess.run)",
    ]


@pytest.mark.parametrize("code", ["def f(:", "!id", "\x00", b"\xff\xfe"])
def test_what_is_no_python_is_left_to_who_runs_it(code):
    assert static_analysis.findings(code) == []


def test_code_that_is_nested_too_deeply_is_one_finding():
    deep = "x = " + "-" * 5000 + "1"
    assert static_analysis.findings(deep) == ["line 1 starts code that is nested too deeply to be checked"]


def test_a_file_is_read_in_the_encoding_that_it_names():
    hidden = b"# coding: utf-7\n#+AAo-eval('1')\n"
    assert static_analysis.findings(hidden.decode()) == []
    assert static_analysis.findings(hidden) == ["line 3 runs code from a string (builtins.eval)"]
