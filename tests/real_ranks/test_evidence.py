"""What the probe and the timeline tell of real trainings on two ranks, in several styles, and what is made of it."""

from __future__ import annotations

import pytest

from course_grader.script import contract, criteria
from course_grader.script.criteria import Measured, Weights
from course_lib.notebook.judging import judge
from course_lib.ranks.run_record import Evidence, collect

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

START = """
import os
import horovod.tensorflow as hvd
import tensorflow as tf
from course_lib import data

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
assert tf.config.get_visible_devices("GPU") == [gpus[hvd.local_rank()]]
cifar = data.load("cifar10", test=False)
layers = tf.keras.layers
model = tf.keras.Sequential(
    [layers.Rescaling(1 / 64, -2), layers.Conv2D(8, 3, 2), layers.BatchNormalization(), layers.ReLU(),
     layers.GlobalAveragePooling2D(), layers.Dense(10)]
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
"""
FIT = (
    START
    + """
import horovod.keras

whole = tf.data.Dataset.from_tensor_slices((cifar.x_train, cifar.y_train)).shuffle(1280, seed=1)
mine = whole.shard(hvd.size(), hvd.rank()).batch(32, drop_remainder=True).take(1280 // 32 // hvd.size())
mine = mine.map(lambda images, labels: (tf.image.random_flip_left_right(images), labels))
optimizer = horovod.keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.002), num_groups=1)
model.compile(optimizer, loss, metrics=["accuracy"])
start = [horovod.keras.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(mine, validation_data=mine.take(3), epochs=2, callbacks=start, verbose=0)
"""
)
LOOP = (
    START
    + """
optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)

def step(images, labels, first):
    with tf.GradientTape() as tape:
        error = loss(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
    optimizer.apply_gradients(zip(tape.gradient(error, model.trainable_variables), model.trainable_variables))
    if first:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables, root_rank=0)

step = STYLE(step)
for epoch in range(2):
    part = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), 2, batch_size=32, epoch=epoch)
    for i in range(0, len(part[0]), 32):
        images, labels = (array[i : i + 32] for array in part)
        step(tf.constant(images), tf.constant(labels), epoch == i == 0)
    model(images)  # no step: nothing is recorded
"""
)
SAVE = """
if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
"""
FORGED = """
import course_lib.ranks.instrumentation.training

course_lib.ranks.instrumentation.training.digest = lambda weights: "the same"
"""


def run(text: str, tmp_path) -> Evidence:
    script = tmp_path / "assessment.py"
    script.write_text(text)
    env = {"COURSE_SLICE": "1280", "COURSE_FAKE_GPUS": "2"}
    return collect(script, ranks=2, cwd=tmp_path, timeout=120, env=env)


def verdicts(evidence: Evidence) -> dict:
    measured = Measured(None, evidence, Weights(1.0, 1.0), 1000.0, 0.0, 1280, 0.2, 0.2)
    return {v.id: v for v in judge(measured, criteria.with_points(contract.read().points)) if v.id != "serial"}


STYLES = {
    "fit": FIT + SAVE,
    "in a graph": LOOP.replace("STYLE", "tf.function") + SAVE,
    "eager, one after another": LOOP.replace("STYLE", "") + SAVE,
}


@pytest.mark.parametrize("style", STYLES)
def test_honest_styles_get_everything(style, tmp_path):
    evidence = run(STYLES[style], tmp_path)
    assert evidence.result.code == 0, evidence.result
    assert {v.id: v.reason for v in verdicts(evidence).values() if not v.passed} == {}
    for rank in evidence.ranks:
        assert [len(step) for step in rank.examples] == [32] * 40
        assert rank.number("progress", "updates") == 40
    # Nothing but the gradients is reduced 40 times: what is counted are values of the network, not tensors.
    reduced = evidence.collectives.elements["ALLREDUCE"] / 40
    assert reduced == pytest.approx(evidence.ranks[0].values, abs=1)


def test_a_probe_that_was_changed_is_not_believed(tmp_path):
    wrapped = "horovod.keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.002), num_groups=1)"
    assert wrapped in FIT
    found = verdicts(run(FIT.replace(wrapped, "tf.keras.optimizers.Adam(0.002)") + FORGED + SAVE, tmp_path))
    assert "The script replaced course_lib.ranks.instrumentation.training.digest" in found["averaged"].reason
    assert sum(v.points for v in found.values()) == 0


def test_records_that_a_script_writes_itself_are_not_genuine(tmp_path):
    forges = """
import os, pathlib

folder = pathlib.Path(os.environ["COURSE_PROBE"])
rank = os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
assert not (folder / f"rank-{rank}.key").exists()
if rank == "1":
    with (folder / "rank-1.jsonl").open("a") as records:
        records.write('{"kind": "fit-end", "learning_rate": 0.02}\\n')
"""
    evidence = run(forges, tmp_path)
    assert evidence.result.code == 0, evidence.result
    assert [rank.genuine for rank in evidence.ranks] == [True, False]
    assert not evidence.ranks[1].records.get("fit-end")
