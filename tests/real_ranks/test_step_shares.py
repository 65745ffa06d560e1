"""`course run --where` finds the part of a training step that was made slow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from course_lib.ranks import launch, step_shares
from course_lib.ranks.step_shares import ADVICE, CALLBACKS, INPUT, KERAS, MOVING, NETWORK, WAITING

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

TRAINING = """
import sys, time
import horovod.tensorflow.keras as hvd
import tensorflow as tf

hvd.init()
slow, steps = sys.argv[1].split(","), int(sys.argv[2])
here = lambda part: f"{part}{hvd.rank()}" in slow
width = 1500 if "bytes" in slow else 16
pause = 0.1 if "eagerly" in slow else 0.03

def images(number):
    if here("input"):
        time.sleep(pause)
    return number * tf.ones((8, width))

class Pause(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if here("callback"):
            time.sleep(pause)

class Slow(tf.keras.Model):
    def make_train_function(self, force=False):
        step = super().make_train_function(force)
        self.train_function = lambda batches: (time.sleep(pause * here("keras")), step(batches))[1]
        return self.train_function

data = tf.data.Dataset.range(steps)
data = data.map(lambda i: tf.ensure_shape(tf.py_function(images, [tf.cast(i, tf.float32)], tf.float32), (8, width)))
data = data.map(lambda batch: (batch, tf.zeros(8)))
inputs = tf.keras.Input((width,))
model = Slow(inputs, tf.keras.layers.Dense(1)(tf.keras.layers.Dense(width)(inputs)))
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1e-9))
model.compile(optimizer, "mse", run_eagerly="eagerly" in slow)
model.fit(data, epochs=1, callbacks=[Pause()], verbose=0)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


def profile(script, slow):
    """The shares of two ranks whose slow parts are these: a part and the rank that it is slow on."""
    options = launch.Options(profile=script.with_suffix(""))
    with launch.start(script, [slow, 90], ranks=2, timeout=180, options=options) as run:
        assert not run.wait().code, run.wait()
    return step_shares.read(options.profile)


@pytest.mark.parametrize(
    ("slow", "rank", "part"),
    [("callback0", 0, CALLBACKS), ("input1,eagerly", 1, INPUT), ("keras1", 1, KERAS), ("bytes", 0, MOVING)],
)
def test_the_slow_part_has_the_largest_share_and_is_named(script, slow, rank, part):
    ranks = profile(script, slow)
    share, largest = ranks[rank].shares, max(step_shares.PARTS, key=ranks[rank].shares.get)
    assert largest == part, share
    assert ADVICE[part] in step_shares.bottleneck(ranks)
    if slow != "bytes":  # the other rank waits as long
        assert ranks[1 - rank].shares[WAITING] == pytest.approx(share[part], abs=0.25)
        assert share[WAITING] < 0.1
        assert f"Rank {rank} is the slowest" in step_shares.bottleneck(ranks)


def test_the_command_prints_a_table_or_says_that_there_were_too_few_steps(script):
    for steps, code, words in ((90, 0, ("rank 1", NETWORK, "milliseconds")), (30, 1, ("71 training steps",))):
        command = [sys.executable, "-m", "course_lib.command.cli", "run", "-np", "2", "--where", script, "--"]
        done = subprocess.run([*command, "none", str(steps)], capture_output=True, text=True, cwd=script.parent)
        assert done.returncode == code, done.stderr
        assert all(word in done.stdout + done.stderr for word in words)
        assert [path.name for path in script.parent.iterdir()] == ["train.py"]
