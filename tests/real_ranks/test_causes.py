"""Why a run of real ranks fails or stands still: `course run` says it in a sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from course_lib.ranks import launch, run
from course_lib.ranks.messages.waiting import SAME_CALLS, SAME_STEPS

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

TRAINING = """
import sys
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
case, first = sys.argv[1], hvd.rank() == 0
images = 80 if first or case != "uneven" else 88
x, y = np.zeros((images, 8), np.float32), np.zeros(images, np.int64)
model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.9)), loss, metrics=["accuracy"])

class Stop(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True

callbacks = {
    "metric": [hvd.callbacks.MetricAverageCallback()] * first,
    "stop": [Stop()] * first,
    "warm-up": [hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2)],
}.get(case, [])
model.fit(x, y, batch_size=8, epochs=3, callbacks=callbacks, verbose=0)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


def course_run(*arguments: str) -> tuple[int, list[str]]:
    """Exit code of `course run`, and the lines on its standard error that it says itself, last lines included."""
    command = [sys.executable, "-m", "course_lib.command.cli", "run", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    return done.returncode, lines[next(i for i, line in enumerate(lines) if line.startswith("course:")) :]


@pytest.mark.parametrize("case", ["stop", "uneven"])
def test_a_rank_that_ended_while_another_waited_for_it_is_named(script, case):
    code, said = course_run(str(script), "-np", "2", "--", case)
    assert code == 1
    cause = f"Rank 0 had ended while rank 1 still waited in the all-reduce of gradients: {SAME_STEPS}"
    assert said[:2] == [f"course: {cause}", "course: Rank 1 failed with exit code 1."]
    assert said[2] == "Last lines of rank 1:" and len(said) <= 12
    assert any("model.fit(x, y" in line for line in said) and any("has been shut down" in line for line in said)
    assert not any("site-packages" in line and "File" in line for line in said)


def test_an_error_of_the_stack_has_its_advice(script):
    code, said = course_run(str(script), "-np", "2", "--", "warm-up")
    assert code == 1
    assert said[0] in [f"course: Rank {rank} failed with exit code 1." for rank in (0, 1)]
    assert any("AttributeError: 'float' object has no attribute 'dtype'" in line for line in said)
    assert "momentum_correction=False" in said[-1] and said[-1].startswith("course: ")


def test_ranks_that_wait_in_different_collectives_are_named(script, monkeypatch, marked):
    monkeypatch.setattr(run, "SILENCE_S", 2.0)
    with launch.start(script, ["metric"], 2, timeout=300, env=marked) as started:
        causes = []
        for event in started:
            if event.kind == "stall":
                causes.append(event.data["cause"])
                started.stop()
    line = f"train.py, line {len(TRAINING.splitlines())}"
    places = f"Rank 0 waits in MetricAverageCallback ({line}), rank 1 in a training step of fit ({line})"
    assert causes == [f"{places}: {SAME_CALLS}"]
    result = started.wait()
    assert (result.code, result.cause) == (launch.STOPPED, causes[0])


KILLED = """
import os, horovod.tensorflow as hvd, tensorflow as tf
hvd.init()
print("38/58 [==>", end="", flush=True)
hvd.rank() == 0 and os.kill(os.getpid(), 9)
hvd.allreduce(tf.zeros(1), name="x")
"""


def test_a_rank_killed_within_a_line_is_not_taken_for_another(tmp_path, controller):
    path = tmp_path / "killed.py"
    path.write_text(KILLED)
    code, said = course_run(str(path), "-np", "2", f"--{controller}")
    assert code == 137
    assert said[0] == "course: Rank 0 was killed by signal 9 (SIGKILL)."
