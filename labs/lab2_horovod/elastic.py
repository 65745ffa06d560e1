"""Train a small network on ranks that may be lost: those that are left go on from the last commit.

python elastic.py LOOP --steps 60     (LOOP: a file with the pickled loop that notebook 2d has you write)
"""

import argparse
import os
import pickle
import time
from pathlib import Path

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data
from course_lib.system.notices import notify

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("loop", help="a file with a pickled function (state, advance, steps, every)")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--commit-every", type=int, default=10, help="steps from one commit to the next")
parser.add_argument("--batch-size", type=int, default=48, help="images in one step, of all ranks together")
parser.add_argument("--pause", type=float, default=0.1, help="seconds to wait in each step, for you to see something")
parser.add_argument("--save", default="", help="where rank 0 puts the trained weights (.npz)")
args = parser.parse_args()

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:  # each rank seems to be on a host of its own, so that all have local rank 0
    tf.config.set_visible_devices(gpus[hvd.rank() % len(gpus)], "GPU")
notify("start", process=os.getpid())
tf.keras.utils.set_random_seed(1)
fashion = data.load("fashion_mnist")
model = tf.keras.Sequential(
    [
        tf.keras.layers.Rescaling(1 / 255, input_shape=fashion.x_train.shape[1:]),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(32, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
optimizer.build(model.trainable_variables)
measure = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function(reduce_retracing=True)
def update(images, labels):
    with tf.GradientTape() as tape:
        loss = measure(labels, model(images))
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))


def advance(state):
    """One step. However many ranks there are, together they take the same batch."""
    batch = np.random.default_rng(state.step).choice(len(fashion.x_train), args.batch_size, replace=False)
    mine = batch[hvd.rank() :: hvd.size()]
    update(fashion.x_train[mine], fashion.y_train[mine])
    time.sleep(args.pause)
    notify("step", step=state.step + 1, now=hvd.rank(), size=hvd.size())


class State(hvd.elastic.TensorFlowKerasState):
    """What is committed: weights, momentum, the number of the step. Tells the notebook when."""

    def save(self):
        super().save()
        notify("commit", step=self.step)


@hvd.elastic.run
def train(state):
    """Called anew whenever ranks were lost, with the last commit of the new rank 0."""
    notify("enter", step=state.step, size=hvd.size())
    try:
        loop(state, advance, args.steps, args.commit_every)
    except BaseException:
        notify("noticed")
        raise


loop = pickle.loads(Path(args.loop).read_bytes())
state = State(model, optimizer, step=0)
train(state)
if state.step < args.steps:  # Horovod swallows errors of TensorFlow that it doesn't know
    raise SystemExit(f"The training ended after step {state.step} of {args.steps}.")
if args.save and hvd.rank() == 0:
    np.savez(args.save, *model.get_weights())
