"""What is found in a learner's code by reading it, and that honest code has nothing of it."""

from __future__ import annotations

import pytest

from course_grader.script import static_analysis
from course_lib.authoring import conversions, masters

HONEST = """
import argparse
import gc
import os
import platform
import shutil
import sys
import timeit
from traceback import print_exc
from PIL import Image
from scipy.special import expit
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
from course_lib import data, models
from course_lib.optimizers import LARS

class Timer(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self._began = 0.0

def store(path, text):
    with open(path, "w") as file:
        file.write(text)
        os.fsync(file.fileno())
    os.replace(path, path + "2")

    def on_epoch_end(self, epoch, logs=None):
        optimizer = self.model.optimizer
        optimizer.learning_rate = 0.1
        self.__epochs = epoch
        print(f"{self.__class__.__name__}: {epoch}", "{:.3f}".format(0.5))
        gc.collect()

class Net(tf.keras.Model):
    def call(self, input):
        return input

def freeze(model):
    for layer in model.layers:
        layer.trainable = False

    def measure(self, dtype, model):
        model.rate = tf.cast(0.1, dtype)

def vars_of(vars):
    kinds = [type(var).__name__ for var in vars]
    return kinds, "{0.shape}".format(vars)

args = argparse.ArgumentParser().parse_args()
rows = pd.read_csv("rows.csv").query("rank == 0")
saved = np.load("x.npy", allow_pickle=False)
print(vars(args), f"{vars(args)}", getattr(args, "rate", 0.1))
class Own(tf.keras.optimizers.SGD):
    def update_step(self, gradient, variable):
        self.vars = super().update_step(gradient, variable)

Timer().measure(tf.float32, model=Net())
began = timeit.default_timer()
sys.stdout = open(os.devnull, "w")
gpus = tf.config.list_physical_devices("GPU")
model = models.assessment_cnn((32, 32, 3), 10)
model.optimizer = LARS(0.1)
model.layers[0].trainable = False
for layer, rate in zip(model.layers, np.ones(3, np.float32)):
    layer.rate = rate
path = os.environ.get("COURSE_WEIGHTS", "weights.h5")
"""


def test_honest_code_has_nothing_to_look_at():
    assert static_analysis.findings(HONEST) == []


def test_no_solution_and_no_script_of_the_course_has_anything_to_look_at():
    cells = [cell for path in masters.find() for cell in masters.read(path).cells if cell.kind == "exercise"]
    assert len(cells) > 50
    assert {cell.id: found for cell in cells if (found := static_analysis.findings(cell.source))} == {}
    for folder in (conversions.ASSESSMENT, conversions.LAB2):
        assert static_analysis.findings(conversions.converted(folder=folder)) == []


@pytest.mark.parametrize(
    "code, found",
    [
        ("import gc\ngc.get_objects()", "line 2 reaches for gc.get_objects"),
        ("from gc import get_objects", "line 1 imports gc.get_objects"),
        ("import os.path\nos.system('id')", "line 2 reaches for os.system"),
        ("'{0.__traceback__.tb_frame}'.format(e)", "line 1 has {0._ in a string"),
        ("way = '{0.f_' + 'locals}'\nway.format(e)", "line 2 reaches for way.format"),
        ("str.format('{0.' + '_x}', e)", "line 1 reaches for str.format"),
        ("import string\nstring.Formatter().get_field('0.a', (np,), {})", "line 1 imports string"),
        ("import logging.config", "line 1 imports logging.config"),
        ("from course_lib.data import marks", "line 1 imports course_grader.script.watermarks"),
        ("from course_lib import data\ndata.marks", "line 2 reaches for data.marks"),
        ("os.environ['COURSE_MARKS']", "line 1 has COURSE_MARKS in a string"),
        ("for module in (np,):\n    module.allclose = None", "line 2 changes module.allclose"),
        ("for one in [tf.keras.Model]:\n    one.fit = None", "line 2 changes one.fit"),
        ("one, other = tf.keras.Model, 3\none.fit = None", "line 2 changes one.fit"),
        ("def change(module):\n    module.allclose = None\nchange(np)", "line 3 uses np"),
        ("def change(model):\n    model.fit = None\nchange(tf.keras.Model)", "line 2 changes model.fit"),
        ("def change(model):\n    model.fit = None\nlist(map(change, [tf.keras.Model]))", "line 2 changes model.fit"),
        ("def change(model=tf.keras.Model):\n    model.fit = None", "line 2 changes model.fit"),
        ("def get():\n    return tf.keras.Model\nget().fit = None", "line 3 changes get().fit"),
        ("class A:\n    model = tf.keras.Model\nA.model.fit = None", "line 3 changes A.model.fit"),
        ("self.model = tf.keras.Model\nself.model.fit = None", "line 2 changes self.model.fit"),
        ("d = {'m': tf.keras.Model}\nd['m'].fit = None", "line 2 changes d['m'].fit"),
        ("d = []\nd.append(tf.keras.Model)\nd.pop().fit = None", "line 3 changes d.pop().fit"),
        ("model = tf.keras.Sequential()\ntype(model).fit = None", "line 2 changes type(model).fit"),
        ("[tf.keras.Model][0].fit = None", "line 1 changes [tf.keras.Model][0].fit"),
        ("def f(os):\n    pass\nx = os\nx.system('id')", "line 3 uses os"),
        ("from os.path import os as o\no.system('id')", "line 1 imports os.path.os"),
        ("f'{{0.f_{word}}}'.format(e)", "line 1 reaches for f'{{0.f_{word}}}'.format"),
        ("getattr(np, 'os').system('id')", "line 1 reaches for np.os"),
        ("getattr(f, '__globals__')", "line 1 reaches for f.__globals__"),
        ("getattr(f, name)", "line 1 uses getattr"),
        ("getattr(f, None)", "line 1 uses getattr"),
        ("getattr(f, 'x', eval('1'))", "line 1 uses eval"),
        ("vars(tf.keras.utils)['os'].system('id')", "line 1 uses vars"),
        ("def print(x):\n    return x\nprint(vars(tf.keras.utils))['os']", "line 3 uses vars"),
        ("def f(vars):\n    pass\nvars(tf.keras.utils)['os']", "line 3 uses vars"),
        ("def f(vars):\n    class A:\n        x = vars(tf.keras.utils)\n        vars = 1", "line 3 uses vars"),
        ("import timeit\ntimeit.timeit('1')", "line 2 reaches for timeit.timeit"),
        ("import traceback\ntraceback.walk_stack(None)", "line 2 reaches for traceback.walk_stack"),
        ("pd.DataFrame().query('@e.tb_' + 'frame')", "line 1 reaches for pd.DataFrame().query"),
        ("import course_lib.data as d\nd.marks", "line 2 reaches for d.marks"),
        ("np.load('x.npy', allow_pickle=True)", "line 1 reads pickles"),
        ("import dataclasses\ndataclasses.types.CodeType", "line 2 reaches for dataclasses.types.CodeType"),
        ("x = " + "1 + " * 900 + "eval('1')", "line 1 "),
        ("opt = tf.keras.Model\nopt.fit = None", "line 2 changes opt.fit"),
        ("import subprocess as s", "line 1 imports subprocess"),
        ("from os import system", "line 1 imports os.system"),
        ("import course_lib.notebook.judging", "line 1 imports course_lib.notebook.judging"),
        ("from labs.lab1_gradient_descent.lessons import checks_1a", "line 1 imports labs.lab1_gradient_descent"),
        ("from . import x", "line 1 imports ..x"),
        ("from numpy import ctypeslib", "line 1 imports numpy.ctypeslib"),
        ("import os\nos.system('id')", "line 2 reaches for os.system"),
        ("import os as o\no.fork()", "line 2 reaches for o.fork"),
        ("import os\nx = os\nx.fork()", "line 2 uses os"),
        ("import sys\nsys.modules.clear()", "line 2 reaches for sys.modules"),
        ("f.__globals__['points'] = 1", "line 1 reaches for f.__globals__"),
        ("().__class__.__bases__", "line 1 reaches for ().__class__"),
        ("judge._criteria", "line 1 reaches for judge._criteria"),
        ("np.os.system('id')", "line 1 reaches for np.os"),
        ("eval('1')", "line 1 uses eval"),
        ("getattr(f, '__co' + 'de__')", "line 1 uses getattr"),
        ("def f():\n    __import__('gc')", "line 2 uses __import__"),
        ("tf.keras.saving.deserialize_keras_object({})", "line 1 reaches for tf.keras.saving.deserialize_keras_object"),
        ("tf.keras.optimizers.get({'class_name': 'gc', 'config': {}})", "line 1 has class_name in a string"),
        ("tf.io.read_file('x')", "line 1 reaches for tf.io.read_file"),
        ("tf.io.gfile.GFile('x')", "line 1 reaches for tf.io.gfile.GFile"),
        ("tf.io.gfile.copy('/marks.json', 'x')", "line 1 has marks.json in a string"),
        ("tf.nn.conv2d(x, w, 1, 'SAME')", "line 1 reaches for tf.nn.conv2d"),
        ("tf.gradients(loss, weights)", "line 1 reaches for tf.gradients"),
        ("tf.nn.atrous_conv2d(x, w, 1, 'SAME')", "line 1 reaches for tf.nn.atrous_conv2d"),
        ("layer.convolution_op(x, w)", "line 1 reaches for layer.convolution_op"),
        ("tape.jacobian(y, w)", "line 1 reaches for tape.jacobian"),
        ("optimizer.update_step(g, w)", "line 1 reaches for optimizer.update_step"),
        ("tf.io.write_file('x', y)", "line 1 reaches for tf.io.write_file"),
        ("things.getattr(np, name)", "line 1 reaches for things.getattr"),
        ("tf.keras.losses.get(dict(class_name='x'))", "line 1 names a class to be found"),
        ("logging.Formatter('{a.b}', style='{')", "line 1 formats in a way of its own"),
        ("class A(contextlib.redirect_stdout):\n    _stream = 'modules'", "line 2 redirects what is no stream"),
        ("x = " + "-" * 5000 + "1", "line 1 begins what is nested too deeply"),
        ("from pandas.io.pickle import pickle", "line 1 imports pandas.io.pickle.pickle"),
        ("pd.io.pickle.pickle.loads(x)", "line 1 reaches for pd.io.pickle.pickle"),
        ("from course_lib.data.published import pickle as p", "line 1 imports course_lib.data.published.pickle"),
        ("from numpy.distutils.exec_command import exec_command", "line 1 imports numpy.distutils.exec_command"),
        ("from horovod.runner.common.util import codec", "line 1 imports horovod.runner.common.util.codec"),
        ("x = b'\\n__globals__'", "line 1 has __globals__ in a string"),
        ("import time\ntime.time = lambda: 0.0", "line 2 changes time.time"),
        ("import tensorflow as tf\ntf.keras.Model.fit = None", "line 2 changes tf.keras.Model.fit"),
        ("import horovod.tensorflow as hvd\nx = hvd\nx.size = None", "line 3 changes x.size"),
    ],
)
def test_what_has_to_be_looked_at_is_named_with_its_line(code, found):
    assert any(finding.startswith(found) for finding in static_analysis.findings(code)), static_analysis.findings(code)


@pytest.mark.parametrize("code", ["def f(:", "!id", "\x00", "(" * 500 + ")" * 500])
def test_what_is_no_python_is_left_to_who_runs_it(code):
    assert static_analysis.findings(code) == []


def test_a_file_is_read_in_the_encoding_that_it_names():
    hidden = b"# coding: utf-7\n#+AAo-eval('1')\n"
    assert static_analysis.findings(hidden.decode()) == []
    assert [finding.split(" ", 2)[2] for finding in static_analysis.findings(hidden)] == ["uses eval"]
